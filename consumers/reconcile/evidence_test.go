package reconcile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

func TestUnpublished(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ev := func(version uint64, n int) machines.Message {
		return machines.Message{Kind: machines.KindEvent, Version: version, N: n, At: now}
	}
	fx := machines.Message{Kind: machines.KindEffect, Version: 5, N: 2}
	refused := machines.Message{Kind: machines.KindEvent, Refusal: 70, At: now}
	outbox := []machines.Message{ev(5, 0), ev(5, 1), fx, refused, ev(6, 0)}
	events := []machines.Message{ev(5, 0), ev(5, 1), refused, ev(6, 0)}
	e := machines.Entity{Mark: 72, MarkedAt: now, Version: 6}
	id := func(seq uint64, at time.Time) string {
		m := machines.Message{Refusal: seq, At: at}
		return m.ID("thing", "default.a")
	}
	for _, c := range []struct {
		name, id string
		at       time.Time
		want     []machines.Message
		met      uint64 // the version that a refusal has met
	}{
		{"none", "", now, events, 0},
		{"an older one", "thing/default.a/4/0", now, events, 0},
		{"an older refusal", id(12, now.Add(-time.Hour)), now, events, 0},
		{"the first", "thing/default.a/5/0", now, events[1:], 0},
		{"the second", "thing/default.a/5/1", now, events[2:], 0},
		{"the refusal among them", id(70, now), now, events[3:], 0},
		{"the last", "thing/default.a/6/0", now, nil, 0},
		{"a later refusal", id(99, now), now, nil, 6},
		{"an older refusal, of a command whose sequence is that of a later one now", id(99, now.Add(-time.Second)), now.Add(-time.Second), events, 0},
		{"a refusal of the version before, of a lost command after the mark: the value was lost, and goes on above its events", id(99, now.Add(time.Second)), now, events, 5},
		{"an older refusal, before the clock was set back", id(12, now.Add(time.Hour)), now.Add(time.Hour), events, 0},
		{"a later refusal of a stream that counts anew", id(3, now.Add(time.Second)), now, nil, 6},
		{"a later version, stored after them", "thing/default.a/9/0", now.Add(time.Second), nil, 0},
		{"a later version, stored before them: the value was lost and made anew", "thing/default.a/9/0", now.Add(-time.Second), events, 0},
		{"by hand", "somebody wrote this by hand/1", now, events, 0},
	} {
		last := LastEvent{Seq: 1, ID: c.id, At: c.at}
		if last.Version, _ = streams.VersionOf("thing", "default.a", c.id); c.met > 0 {
			last.Version = c.met
		}
		require.ElementsMatch(t, c.want, Unpublished("thing", "default.a", outbox, &last, &e, now), c.name)
	}
	anew := LastEvent{Seq: 9, ID: id(3, now.Add(time.Second)), At: now, Version: 6}
	require.Empty(t, Unpublished("thing", "default.a", outbox, &anew, &e, now), "a later refusal of a stream that counts anew")
	none := LastEvent{Begin: Begin{Seq: 3, At: now.Add(time.Second)}}
	require.Empty(t, Unpublished("thing", "default.a", outbox, &none, &e, now), "the stream begins after them")
	none.Again = true
	require.ElementsMatch(t, events, Unpublished("thing", "default.a", outbox, &none, &e, now), "they may be the first ones: their command has not been acknowledged")
	e.LastEvent = 9
	require.ElementsMatch(t, events[3:], Unpublished("thing", "default.a", outbox, &anew, &e, now), "the event was there when the value was written: the clock was set back")
	for i := range outbox {
		outbox[i].At = now.Add(-EventLife)
	}
	require.Empty(t, Unpublished("thing", "default.a", outbox, &LastEvent{}, &e, now), "they have expired")
	require.Len(t, Unpublished("thing", "default.a", outbox, &LastEvent{}, &e, now.Add(-EventLife)), len(events), "by the clock of this machine only")
}

// Power is lost twice: what the first loss took is told also where the second one leaves of all that was published after it no more than the event that was published again.
func TestALossIsToldBeforeWhatIsPublishedAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	missing := []machines.Message{{Kind: machines.KindEvent, Version: 7, At: now}, {Kind: machines.KindEvent, Version: 7, N: 1, At: now}}
	told := machines.Message{Kind: machines.KindEvent, Name: machines.EventReconciled, Version: 8, At: now, Refusal: 70, Body: []byte(`{"version":8}`)}
	list := ToldBefore(told, missing)
	require.Equal(t, missing, list[1:])
	require.EqualValues(t, 6, list[0].Version)
	require.JSONEq(t, `{"version":6}`, string(list[0].Body))
	e := machines.Entity{Mark: 69, MarkedAt: now.Add(-time.Second), Version: 7, LastEvent: 50}
	last := LastEvent{Seq: 57, ID: list[0].ID("thing", "default.a"), At: now, Version: 6}
	require.Equal(t, missing, Unpublished("thing", "default.a", missing, &last, &e, now), "it does not stand for what comes after it")
	require.Empty(t, ToldBefore(told, nil))
	require.Equal(t, missing[:1], ToldBefore(told, []machines.Message{missing[0]})[1:])
}
