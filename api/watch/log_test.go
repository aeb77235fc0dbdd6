package watch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// source is a fan-out of which a test is the index.
type source struct {
	*fanout
	rev   uint64
	truth map[string]uint64
}

func newSource() *source {
	f := &fanout{kick: make(chan struct{}, 1), all: []*watched{{m: &machines.Machine{Name: "gadget"}}}}
	f.log = log{f: f, readers: map[*reader]struct{}{}, newest: map[name]*event{}, marks: []uint64{0}}
	return &source{fanout: f, truth: map[string]uint64{}}
}

func (s *source) change(keys ...string) {
	var events []*event
	for _, key := range keys {
		s.rev++
		s.truth[key] = s.rev
		text := fmt.Appendf(nil, "event: entity\ndata: %s %d %s\n\n", key, s.rev, strings.Repeat("x", 500))
		events = append(events, &event{key: key, rev: s.rev, told: witness{hashOf(key), s.rev, 1}, text: text})
	}
	s.publish(events, []uint64{s.rev}, false)
}

// client is what one who reads has.
type client struct {
	*reader
	t   *testing.T
	has map[string]uint64
	got int
}

func (s *source) client(t *testing.T, shared bool) *client {
	r := s.log.join([]*watched{{m: s.all[0].m, newer: map[string]uint64{}}})
	r.shared = shared
	return &client{r, t, map[string]uint64{}, 0}
}

// read takes one piece, as send writes it.
func (c *client) read() (more bool) {
	text, events, more, lost := c.next()
	require.False(c.t, lost)
	for _, e := range events {
		text = append(text, e.text...)
	}
	require.Less(c.t, len(text), 2*frameSize)
	for line := range strings.Lines(string(text)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var key string
			var rev uint64
			_, err := fmt.Sscan(data, &key, &rev)
			require.NoError(c.t, err)
			require.Greater(c.t, rev, c.has[key], "never an older one after a newer one")
			c.has[key] = rev
			c.got++
		}
	}
	return more
}

func TestASlowReaderGetsTheNewestOfEach(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newSource()
	fast, slow, own := s.client(t, true), s.client(t, true), s.client(t, false)
	const changes = 5000
	for n := range changes {
		s.change(fmt.Sprint("k", random.IntN(200)))
		for fast.read() {
		}
		if n < 2000 && random.IntN(100) == 0 { // then it reads nothing any more
			slow.read()
		}
		if random.IntN(30) == 0 {
			own.read()
		}
	}
	require.LessOrEqual(t, len(s.events)-s.dead, 200, "one of each")
	require.LessOrEqual(t, len(s.events), 401, "and not many that are over")
	for slow.read() {
	}
	for own.read() {
	}
	for _, c := range []*client{fast, slow, own} {
		require.Equal(t, s.truth, c.has)
	}
	require.Equal(t, changes, fast.got)
	require.Less(t, slow.got, changes/2)
	require.Empty(t, s.events, "all have everything")
	s.log.leave(slow.reader)
	s.log.leave(own.reader)
	require.False(t, s.busy())
	s.change("last")
	require.True(t, s.busy(), "nobody has everything")
	s.log.leave(fast.reader)
	require.Empty(t, s.events)
}

func TestAReaderThatLacksTooMuchIsLost(t *testing.T) {
	t.Parallel()
	s := newSource()
	fast, slow := s.client(t, true), s.client(t, true)
	for n := range Waiting + 1 {
		s.change(fmt.Sprint("k", n))
		fast.read()
	}
	_, _, _, lost := slow.next()
	require.True(t, lost)
	require.Len(t, s.events, Waiting)
	require.Len(t, s.newest, Waiting)
	s.lose()
	_, _, _, lost = fast.next()
	require.True(t, lost)
}

// What is not used up to a bound may be used at once; then each waits for what was spent before.
func TestBudget(t *testing.T) {
	t.Parallel()
	var b budget
	require.Zero(t, b.spend(1<<20), "after silence")
	var owed time.Duration
	for range 1024 {
		owed = b.spend(slice)
	}
	require.Positive(t, owed)
	require.Less(t, owed, time.Minute)
}

// A reader that never catches up is given a key that changes all the time, too.
func TestASlowReaderIsGivenWhatChangesOften(t *testing.T) {
	t.Parallel()
	s := newSource()
	fast, slow := s.client(t, true), s.client(t, true)
	for n := range 4000 {
		s.change("hot", fmt.Sprint("a", n%1500), fmt.Sprint("b", n%1400))
		for fast.read() {
		}
		if n%120 == 119 { // a frame is some 120 events
			require.True(t, slow.read())
		}
	}
	last := slow.has["hot"]
	require.Greater(t, last, s.rev/2, "of %d", s.rev)
	for slow.read() {
	}
	require.Equal(t, s.truth, slow.has)
	require.Empty(t, slow.early)
}

// What slow readers of a feed lack is bounded by its bytes: whoever lacks more begins anew. One that lacks many changes of few entities is given the newest.
func TestWhatSlowReadersLackIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	const large = 1 << 20
	s := newSource()
	change := func(key string) {
		s.rev++
		s.publish([]*event{{key: key, rev: s.rev, told: witness{hashOf(key), s.rev, 1}, text: make([]byte, large)}}, []uint64{s.rev}, false)
		require.LessOrEqual(t, s.log.size, WaitingBytes)
	}
	slow := s.client(t, false)
	for n := range 3 * WaitingBytes / large {
		change(fmt.Sprint(n % 3))
	}
	_, _, _, lost := slow.next()
	require.False(t, lost)
	for more := true; more; {
		_, _, more, lost = slow.next()
		require.False(t, lost)
	}
	for n := range WaitingBytes/large + 1 {
		change(fmt.Sprint("key", n))
	}
	_, _, _, lost = slow.next()
	require.True(t, lost)
}
