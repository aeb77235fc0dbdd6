package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// What a partition remembers of commands is bounded by itself, not by the number of entities; one that is busy alone has the most.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	t.Parallel()
	for entities, most := range map[int]int{1: maxRecent, 100: maxRecent, 512: roomForRecent / 512, DefaultCache: minRecent, 100 * DefaultCache: minRecent} {
		s := &cachedEntity{m: consumertest.Things}
		for n := range 3 * maxRecent {
			s.trim(entities)
			s.remember(machines.Outcome{ID: fmt.Sprintf("~%d", n), Command: "add"})
			require.LessOrEqual(t, len(s.recent), most)
		}
		require.Len(t, s.recent, most, entities)
		require.Equal(t, fmt.Sprintf("~%d", 3*maxRecent-1), s.recent[most-1].ID, "the last ones")
		require.LessOrEqual(t, cap(s.recent), 2*most)
	}
}

// What has no stored answer yet is kept in any case: the value has to hold it.
func TestWhatIsNotStoredIsRemembered(t *testing.T) {
	t.Parallel()
	s := &cachedEntity{m: consumertest.Things}
	for n := range 3 * maxRecent {
		s.trim(DefaultCache)
		s.remember(machines.Outcome{ID: fmt.Sprintf("key-%d", n), Command: "add"})
	}
	require.Len(t, s.recent, 3*maxRecent)
	s.markAnswersStored()
	s.trim(DefaultCache)
	require.Len(t, s.recent, minRecent-1)
}

// An outcome does not keep the message that brought its command: id and name are parts of its headers and subject.
func TestAnOutcomeKeepsNoMessage(t *testing.T) {
	t.Parallel()
	message := strings.Repeat("x", 1000) + "key-1" + "add"
	it := &item{id: message[1000:1005], addr: streams.Address{Last: message[1005:]}}
	o := it.outcome()
	require.Equal(t, []string{"key-1", "add"}, []string{o.ID, o.Command})
	begin := uintptr(unsafe.Pointer(unsafe.StringData(message)))
	require.False(t, slices.ContainsFunc([]string{o.ID, o.Command}, func(part string) bool {
		at := uintptr(unsafe.Pointer(unsafe.StringData(part)))
		return at >= begin && at < begin+uintptr(len(message))
	}))
}

// BenchmarkOutcome is what a command costs to be remembered.
func BenchmarkOutcome(b *testing.B) {
	s := &cachedEntity{m: consumertest.Things}
	it := &item{id: "~ABCDEFGHIJKLMNOPQRSTUVWXYZ", addr: streams.Address{Last: "label"}}
	b.ReportAllocs()
	for b.Loop() {
		s.trim(625)
		s.remember(it.outcome())
		s.newOutcomes = 0
	}
}
