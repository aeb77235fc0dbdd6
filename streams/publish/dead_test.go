package publish

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

func (g *ground) deadLetters() (DeadLetters, *Appender) {
	a := g.appender(AppenderOptions{})
	return DeadLetters{JS: g.JS, Appender: a}, a
}

func (g *ground) bury(d DeadLetters, l DeadLetter, id string) Result {
	g.T.Helper()
	r := d.Appender.Append(g.Ctx, []Write{{streams.DeadStream, d.Message(l, id)}})[0]
	require.NoError(g.T, r.Err)
	return r
}

func testLetter(i int) DeadLetter {
	key := fmt.Sprintf("default.a-%d", i)
	return DeadLetter{
		Consumer: "p01", Machine: "thing", Key: key, Subject: streams.Names{}.Stored("thing", key, "poison"), Reason: "the machine panics: näh\nat line 1", Tries: 3, Body: []byte(`{"n":1}`),
		Header: nats.Header{
			streams.HeaderActor: {"ann"}, streams.HeaderReason: {"because"}, streams.HeaderTrace: {"00-1-2-01"}, streams.HeaderID: {"thing/" + key + "/k"},
			streams.HeaderReply: {"_INBOX.x"}, "Nats-Rollup": {"all"}, "Nats-Expected-Stream": {"OTHER"},
		},
	}
}

func TestADeadLetterTellsItsStory(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	d, _ := g.deadLetters()
	first := g.bury(d, testLetter(1), "dead/p01/7/99")
	again := g.bury(d, testLetter(1), "dead/p01/7/99")
	require.Equal(t, Result{Seq: first.Seq, Duplicate: true}, again, "given up twice, kept once")
	l, err := d.Get(g.Ctx, first.Seq)
	require.NoError(t, err)
	require.False(t, l.Time.IsZero())
	want := testLetter(1)
	require.Equal(t, []any{"p01", "thing", want.Key, want.Subject, 3, string(want.Body)}, []any{l.Consumer, l.Machine, l.Key, l.Subject, l.Tries, string(l.Body)})
	require.Equal(t, "the machine panics: näh at line 1", l.Reason)
	require.Equal(t, "instar.dead.p01.thing."+want.Key, g.Held(streams.DeadStream, ">")[0].Subject)
	require.Equal(t, "ann", l.Header.Get(streams.HeaderActor))
	require.Equal(t, "because", l.Header.Get(streams.HeaderReason))
	require.Equal(t, []string{"00-1-2-01"}, l.Header[streams.HeaderTrace])
	require.Equal(t, "thing/default.a-1/k", l.Header.Get("Instar-Dead-Id"))
	for _, h := range []string{streams.HeaderReply, "Nats-Rollup", "Nats-Expected-Stream"} {
		require.NotContains(t, l.Header, h)
	}
	_, err = d.Get(g.Ctx, 99)
	require.ErrorIs(t, err, ErrNoLetter)
	require.ErrorIs(t, d.Redrive(g.Ctx, 99), ErrNoLetter)
}

func TestWhatCannotBeAddressedIsKeptAsUnknown(t *testing.T) {
	t.Parallel()
	d := DeadLetters{}
	for _, l := range []DeadLetter{{Consumer: "p01"}, {Consumer: "p01", Machine: "thing", Key: "A.*"}, {Consumer: "p01", Key: "default.a"}, {Consumer: "p01", Machine: "thing", Key: "default.>"}} {
		require.Equal(t, "instar.dead.p01.unknown.unknown.unknown", d.Message(l, "x").Subject)
	}
}

func TestDeadLettersAreListedInPages(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	d, _ := g.deadLetters()
	list, err := d.List(g.Ctx, 0, 10)
	require.NoError(t, err)
	require.Empty(t, list)
	for i := range 12 {
		g.bury(d, testLetter(i), fmt.Sprint(i))
	}
	s, err := g.JS.Stream(g.Ctx, streams.DeadStream)
	require.NoError(t, err)
	for _, seq := range []uint64{1, 4, 5, 6, 12} { // gaps at the start, in the middle, at the end
		require.NoError(t, s.DeleteMsg(g.Ctx, seq))
	}
	var seen []uint64
	for after, pages := uint64(0), 0; ; pages++ {
		page, err := d.List(g.Ctx, after, 3)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), 3)
		if len(page) == 0 {
			require.Equal(t, 3, pages)
			break
		}
		for _, l := range page {
			seen, after = append(seen, l.Seq), l.Seq
		}
	}
	require.Equal(t, []uint64{2, 3, 7, 8, 9, 10, 11}, seen)
}

func TestRedrive(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	d, _ := g.deadLetters()
	effect := testLetter(2)
	effect.Subject = streams.Names{}.Effect("thing", strings.Repeat("work", 800), effect.Key) // a server takes 4 KiB
	for i, l := range []DeadLetter{testLetter(1), effect} {
		seq := g.bury(d, l, fmt.Sprint(i)).Seq
		require.NoError(t, d.Redrive(g.Ctx, seq))
		require.ErrorIs(t, d.Redrive(g.Ctx, seq), ErrNoLetter)
	}
	for stream, l := range map[string]DeadLetter{streams.CommandStream: testLetter(1), streams.EffectStream: effect} {
		held := g.Held(stream, ">")
		require.Len(t, held, 1)
		require.Equal(t, l.Subject, held[0].Subject)
		require.Equal(t, l.Body, held[0].Data)
		require.Equal(t, "ann", held[0].Header.Get(streams.HeaderActor))
		require.Equal(t, []string{"00-1-2-01"}, held[0].Header[streams.HeaderTrace])
		require.True(t, strings.Contains(held[0].Header.Get(streams.HeaderID), "/redrive-"), "a new command, not the old one again")
		for name := range held[0].Header {
			require.Contains(t, []string{streams.HeaderActor, streams.HeaderReason, streams.HeaderTrace, streams.HeaderID}, name)
		}
	}
}

// Redriving crashed after the message was put back and before the letter was removed, and is done again.
func TestRedriveTwiceIsOnce(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	d, a := g.deadLetters()
	seq := g.bury(d, testLetter(1), "x").Seq
	l, err := d.Get(g.Ctx, seq)
	require.NoError(t, err)
	require.NoError(t, d.Redrive(g.Ctx, seq))
	m := &nats.Msg{Subject: l.Subject, Data: l.Body, Header: nats.Header{streams.HeaderID: g.Held(streams.CommandStream, ">")[0].Header[streams.HeaderID]}}
	r := a.Append(g.Ctx, []Write{{streams.CommandStream, m}})[0]
	require.NoError(t, r.Err)
	require.True(t, r.Duplicate)
	require.Len(t, g.Held(streams.CommandStream, ">"), 1)
}

// The entity is at another revision since the failure was noted with it, so that what the sender expected never holds again; what nobody has taken is sent as it was.
func TestRedriveExpectsNoRevision(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	d, _ := g.deadLetters()
	for i, untaken := range []bool{false, true} {
		l := testLetter(i)
		l.Untaken = untaken
		l.Header[streams.HeaderExpect] = []string{"7"}
		require.NoError(t, d.Redrive(g.Ctx, g.bury(d, l, fmt.Sprint(i)).Seq))
	}
	held := g.Held(streams.CommandStream, ">")
	require.Len(t, held, 2)
	require.Empty(t, held[0].Header.Get(streams.HeaderExpect))
	require.Equal(t, []string{"7"}, held[1].Header[streams.HeaderExpect])
	require.Equal(t, []string{"thing/default.a-1/k"}, held[1].Header[streams.HeaderLookup])
}

func TestDrop(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	d, _ := g.deadLetters()
	seq := g.bury(d, testLetter(1), "x").Seq
	l, err := d.Get(g.Ctx, seq)
	require.NoError(t, err)
	require.ErrorIs(t, d.Drop(g.Ctx, seq, l.Time.Add(-1)), ErrNoLetter, "the sequence was another letter's when it was looked at")
	require.NoError(t, d.Drop(g.Ctx, seq, l.Time))
	require.ErrorIs(t, d.Drop(g.Ctx, seq, l.Time), ErrNoLetter)
	require.Empty(t, g.Held(streams.CommandStream, ">"))
}

// Anybody with the permission to publish dead letters writes what they like. Redriving such a letter must not write
// where its author may not.
func TestStrangeLetters(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	d, _ := g.deadLetters()
	subjects := []string{
		"", "instar.evt.thing.default.a.thing.made", "$KV.things.default.a", "$JS.API.STREAM.DELETE.COMMANDS", "instar.dead.x", "instar", "instar.in", "instar.inn.3.thing.default.a.add",
		"instar.probe", "instar.timer.thing.default.a.late", "a b", "_INBOX.x",
	}
	for _, subject := range subjects {
		m := &nats.Msg{Subject: "instar.dead.who", Data: []byte("{"), Header: nats.Header{headerDeadTries: {"many"}}}
		if subject != "" {
			m.Header[headerDeadSubject] = []string{subject}
		}
		_, err := g.JS.PublishMsg(g.Ctx, m)
		require.NoError(t, err)
	}
	_, err := g.JS.Publish(g.Ctx, "instar.dead.bare", nil) // without any header
	require.NoError(t, err)
	list, err := d.List(g.Ctx, 0, 100)
	require.NoError(t, err)
	require.Len(t, list, len(subjects)+1)
	for _, l := range list {
		require.Zero(t, l.Tries)
		require.ErrorIs(t, d.Redrive(g.Ctx, l.Seq), streams.ErrSubject, l.Subject)
	}
	for _, stream := range []string{streams.CommandStream, streams.EventStream, streams.EffectStream, streams.ProbeStream, "KV_things"} {
		require.Empty(t, g.Held(stream, ">"))
	}
	list, err = d.List(g.Ctx, 0, 100)
	require.NoError(t, err)
	require.Len(t, list, len(subjects)+1, "they stay")
}

// A dead letter that the server cannot read is neither gone nor the end of the list.
func TestAnUnreadableDeadLetterIsNotGone(t *testing.T) {
	t.Parallel()
	g := setup(t, embedded.OS)
	sub, err := g.NC.Subscribe("FAULT.>", func(m *nats.Msg) {
		request := strings.TrimPrefix(m.Subject, "FAULT.")
		if strings.HasPrefix(request, "STREAM.MSG.GET.") {
			_ = m.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
			return
		}
		_ = g.NC.PublishRequest("$JS.API."+request, m.Reply, m.Data)
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	d, _ := g.deadLetters()
	blind := d
	blind.JS, err = jetstream.NewWithAPIPrefix(g.NC, "FAULT")
	require.NoError(t, err)

	list, err := blind.List(g.Ctx, 0, 10)
	require.NoError(t, err)
	require.Empty(t, list, "there are none")
	for i := range 3 {
		g.bury(d, testLetter(i), fmt.Sprint(i))
	}
	s, err := g.JS.Stream(g.Ctx, streams.DeadStream)
	require.NoError(t, err)
	require.NoError(t, s.DeleteMsg(g.Ctx, 2))
	_, err = blind.Get(g.Ctx, 1)
	require.ErrorIs(t, err, streams.ErrUnreadable)
	for _, gone := range []uint64{2, 4} {
		_, err = blind.Get(g.Ctx, gone)
		require.ErrorIs(t, err, ErrNoLetter)
	}
	_, err = blind.List(g.Ctx, 0, 10)
	require.ErrorIs(t, err, streams.ErrUnreadable)
	list, err = blind.List(g.Ctx, 3, 10)
	require.NoError(t, err)
	require.Empty(t, list)
}
