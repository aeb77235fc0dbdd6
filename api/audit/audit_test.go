package audit

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/audit"
)

// A record of a class that says an earlier time than the one before it stays behind that one: else a page could end between the two, and the next one begin behind both.
func TestPagesKeepTheOrderOfEachChain(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	chain := func(class string, minutes ...int) (list []audit.Line) {
		for i, m := range minutes {
			list = append(list, audit.Line{Record: audit.Record{RecordedAt: began.Add(time.Duration(m) * time.Minute)}, At: uint64(i + 1), Class: class})
		}
		return list
	}
	var got []string
	for _, s := range merge([][]audit.Line{chain("state", 1, 9, 2, 10), nil, chain("error", 3, 9, 11)}) {
		got = append(got, fmt.Sprint(s.Class, s.At))
	}
	require.Equal(t, []string{"state1", "error1", "state2", "state3", "error2", "state4", "error3"}, got)
}
