package store

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"
)

func subject(r *rand.Rand, tokens ...string) string {
	var t []string
	for range 1 + r.IntN(4) {
		t = append(t, tokens[r.IntN(len(tokens))])
	}
	return strings.Join(t, ".")
}

// Subjects are matched as the server matches them.
func TestSubjectsMatchAsTheServersDo(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 100_000 {
		filter, other, s := subject(r, "a", "b", "*", ">"), subject(r, "a", "b", "*", ">"), subject(r, "a", "b")
		require.Equal(t, server.IsValidSubject(filter), Valid(filter), filter)
		if !Valid(filter) || !Valid(other) {
			continue
		}
		require.Equal(t, server.SubjectMatchesFilter(s, filter), Match(filter, s), "%s %s", filter, s)
		require.Equal(t, server.SubjectsCollide(filter, other), Collide(filter, other), "%s %s", filter, other)
	}
}

// Partitions of commands are the server's.
func TestTransformsAreTheServers(t *testing.T) {
	t.Parallel()
	const source, target = "cmd.*.*.*.>", "in.{{partition(16,1,2,3)}}.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}.>"
	theirs, err := server.NewSubjectTransform(source, target)
	require.NoError(t, err)
	ours := NewTransform(source, target)
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		s := "cmd." + subject(r, "a", "bb", "ccc", "d1") + "." + subject(r, "a", "bb", "ccc", "d1")
		want, err := theirs.Match(s)
		got, ok := ours.Apply(s)
		require.Equal(t, err == nil, ok, s)
		if ok {
			require.Equal(t, want, got)
		}
	}
}

// A log is what a list of its messages says.
func TestALogIsAListOfMessages(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(2, seed))
		l := NewLog(uint64(r.IntN(3)))
		var list []*Entry
		for range 200 {
			switch r.IntN(6) {
			case 0, 1, 2:
				e := &Entry{Subject: subject(r, "a", "b", "c"), Size: 1}
				l.Append(e)
				list = append(list, e)
			case 3:
				if len(list) > 0 {
					i := r.IntN(len(list))
					require.Same(t, list[i], l.Remove(list[i].Seq))
					list = slices.Delete(list, i, i+1)
				}
			case 4:
				if r.IntN(20) == 0 && l.Last > 2 {
					cut := l.Last - uint64(r.IntN(2))
					l.Truncate(cut)
					list = slices.DeleteFunc(list, func(e *Entry) bool { return e.Seq > cut })
				}
			case 5:
				agree(t, r, l, list)
			}
		}
	}
}

func agree(t *testing.T, r *rand.Rand, l *Log, list []*Entry) {
	t.Helper()
	filter := subject(r, "a", "b", "*", ">")
	if !Valid(filter) {
		filter = ">"
	}
	from := uint64(r.IntN(int(l.Last) + 2))
	var under []*Entry
	for _, e := range list {
		if Match(filter, e.Subject) {
			under = append(under, e)
		}
	}
	require.Equal(t, uint64(len(list)), l.N)
	require.Equal(t, uint64(len(list)), l.Bytes)
	if len(list) > 0 {
		require.Equal(t, list[0].Seq, l.First)
	}
	var last, next *Entry
	var count uint64
	for _, e := range under {
		last = e
		if e.Seq >= from {
			if count++; next == nil {
				next = e
			}
		}
	}
	require.Same(t, last, l.LastUnder(filter))
	require.Same(t, next, l.NextUnder([]string{filter}, from))
	require.Equal(t, count, l.Count([]string{filter}, from, false))
}
