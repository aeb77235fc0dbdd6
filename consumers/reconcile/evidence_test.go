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
	}{
		{"none", "", now, events},
		{"an older one", "thing/default.a/4/0", now, events},
		{"an older refusal", id(12, now.Add(-time.Hour)), now, events},
		{"the first", "thing/default.a/5/0", now, events[1:]},
		{"the second", "thing/default.a/5/1", now, events[2:]},
		{"the refusal among them", id(70, now), now, events[3:]},
		{"the last", "thing/default.a/6/0", now, nil},
		{"a later refusal", id(99, now), now, nil},
		{"a later refusal of a stream that counts anew", id(3, now.Add(time.Second)), now, nil},
		{"a later version, stored after them", "thing/default.a/9/0", now.Add(time.Second), nil},
		{"a later version, stored before them: the value was lost and made anew", "thing/default.a/9/0", now.Add(-time.Second), events},
		{"by hand", "somebody wrote this by hand/1", now, events},
	} {
		last := LastEvent{Seq: 1, ID: c.id, At: c.at}
		last.Version, _ = streams.VersionOf("thing", "default.a", c.id)
		require.ElementsMatch(t, c.want, Unpublished("thing", "default.a", outbox, &last, &e), c.name)
	}
	for i := range outbox {
		outbox[i].At = now.Add(-EventLife)
	}
	require.Empty(t, Unpublished("thing", "default.a", outbox, &LastEvent{}, &e), "they have expired")
}
