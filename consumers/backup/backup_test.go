package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
	"github.com/bcc94042/instar/streams/streamstest"
)

func compressed(t testing.TB, lines string) []byte {
	z, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	return z.EncodeAll([]byte(lines), nil)
}

const head, section = `{"head":{"instarBackup":1,"version":"v1","last":7}}`, `{"section":{"stream":"EVENTS","kind":"messages"}}`

func TestCheck(t *testing.T) {
	t.Parallel()
	good := head + "\n" + section + "\n" + `{"m":{"s":"a.b","q":1}}` + "\n" + `{"end":{"messages":{"EVENTS":1}}}` + "\n"
	h, end, err := Check(bytes.NewReader(compressed(t, good)))
	require.NoError(t, err)
	require.EqualValues(t, 7, h.Last)
	require.Equal(t, 1, end.Messages["EVENTS"])
	for what, lines := range map[string]string{
		"nothing": "", "no head": section, "no end": head + section, "less": head + section + `{"end":{"messages":{"EVENTS":1}}}`, "another stream": head + section + `{"end":{"messages":{"EVENTS":0,"X":0}}}`,
		"a message of nothing": head + `{"m":{"s":"a"}}` + `{"end":{}}`, "an unknown line": head + `{"x":1}` + `{"end":{}}`, "more": good + "{}", "no JSON": head + "x",
	} {
		_, _, err := Check(bytes.NewReader(compressed(t, lines)))
		require.ErrorIs(t, err, ErrIncomplete, what)
	}
	_, _, err = Check(bytes.NewReader(compressed(t, `{"head":{"instarBackup":2,"version":"v9"}}`)))
	require.ErrorContains(t, err, "use the one that made it, v9")
	_, _, err = Check(bytes.NewReader(append(compressed(t, good), 'x')))
	require.ErrorContains(t, err, "too early")
	_, _, err = Check(bytes.NewReader(append(compressed(t, good), compressed(t, good)...)))
	require.EqualError(t, err, "backup: the backup is not complete: something follows its end")
}

// Why a backup cannot be read is told apart: it ends, it is damaged, or the place that it is read from fails.
func TestWhyABackupCannotBeRead(t *testing.T) {
	t.Parallel()
	whole := compressed(t, head+section+strings.Repeat(`{"m":{"s":"a.b","q":1}}`, 1000)+`{"end":{"messages":{"EVENTS":1000}}}`)
	_, _, err := Check(bytes.NewReader(whole[:len(whole)-5]))
	require.ErrorIs(t, err, ErrIncomplete)
	require.ErrorContains(t, err, fmt.Sprintf("it ends at byte %d, too early", len(whole)-5))
	damaged := bytes.Clone(whole)
	damaged[len(whole)/2] ^= 1
	_, _, err = Check(bytes.NewReader(damaged))
	require.ErrorIs(t, err, ErrIncomplete)
	require.ErrorContains(t, err, "it is damaged before byte ")
	_, _, err = Check(io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), iotest.ErrReader(io.ErrNoProgress)))
	require.ErrorIs(t, err, io.ErrNoProgress)
	require.NotErrorIs(t, err, ErrIncomplete)
	require.ErrorContains(t, err, fmt.Sprintf("cannot be read behind byte %d", len(whole)/2))
}

// Whatever a file holds, it is read or refused.
func FuzzCheck(f *testing.F) {
	f.Add([]byte(head+section+`{"m":{"s":"a.b","q":1}}{"end":{"messages":{"EVENTS":1}}}`), false)
	f.Add(compressed(f, head), true)
	f.Fuzz(func(t *testing.T, data []byte, raw bool) {
		if !raw {
			data = compressed(t, string(data))
		}
		if _, end, err := Check(bytes.NewReader(data)); err == nil {
			require.NotNil(t, end)
		}
	})
}

// A snapshot ends at the next section, or with the backup; neither is lost by that.
func TestPartsOfASnapshot(t *testing.T) {
	t.Parallel()
	snapshot := `{"section":{"stream":"ORDERS","kind":"snapshot"}}{"part":"YQ=="}{"part":"Yg=="}`
	for _, after := range []string{section, ""} {
		end := `{"end":{"messages":{"ORDERS":2}}}`
		if after != "" {
			end = `{"end":{"messages":{"ORDERS":2,"EVENTS":0}}}`
		}
		in, err := open(bytes.NewReader(compressed(t, head+snapshot+after+end)))
		require.NoError(t, err)
		l, err := in.next()
		require.NoError(t, err)
		require.Equal(t, KindSnapshot, l.Section.Kind)
		for _, want := range []string{"a", "b", ""} {
			part, err := in.part()
			require.NoError(t, err)
			require.Equal(t, want, string(part))
		}
		if after != "" {
			l, err = in.next()
			require.NoError(t, err)
			require.Equal(t, "EVENTS", l.Section.Stream)
		}
		_, err = in.next()
		require.ErrorIs(t, err, io.EOF)
		in.close()
	}
}

// installed is an empty server for a restore of services, with a stream of somebody else.
func installed(t *testing.T) *Store {
	s, _ := installedAt(t)
	return s
}

func installedAt(t *testing.T) (*Store, *embedded.Server) {
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	_, err := e.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "THEIRS", Subjects: []string{"theirs.>"}})
	require.NoError(t, err)
	a, err := publish.NewAppender(e.NC, publish.AppenderOptions{})
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return &Store{
		NC: e.NC, JS: e.JS, Plan: streams.Plan{States: []string{service.Machine.Plural}}, Machines: []*machines.Machine{service.Machine}, Appender: a, Shared: true, Log: slog.New(slog.DiscardHandler),
		Await: func(ctx context.Context, do func(context.Context) error) error { return do(ctx) },
	}, e.Server
}

// file is a backup of these lines.
func file(t *testing.T, lines ...line) *bytes.Reader {
	var text bytes.Buffer
	out, end := json.NewEncoder(&text), End{Messages: map[string]int{}}
	at := ""
	for _, l := range lines {
		switch {
		case l.Section != nil:
			at = l.Section.Stream
			end.Messages[at] += 0
		case l.Head == nil:
			end.Messages[at]++
		}
		require.NoError(t, out.Encode(l))
	}
	require.NoError(t, out.Encode(line{End: &end}))
	return bytes.NewReader(compressed(t, text.String()))
}

func begins() line {
	return line{Head: &Head{Format: Format, At: time.Now().Add(-time.Minute), Prefix: "instar", Last: 9, Schemas: map[string]int{"service": 1}}}
}

func of(stream, kind string) line { return line{Section: &Section{Stream: stream, Kind: kind}} }

func at(subject string, data any) line {
	raw, _ := json.Marshal(data)
	return line{Message: &Message{Subject: subject, Seq: 1, Time: time.Now(), Data: raw}}
}

func TestAFileWritesNowhereElse(t *testing.T) {
	t.Parallel()
	services := line{Section: &Section{Stream: "KV_services", Kind: KindEntities, Machine: "service"}}
	newer, unknown, others := begins(), begins(), begins()
	newer.Head.Schemas, unknown.Head.Schemas, others.Head.Others = map[string]int{"service": 99}, map[string]int{"thing": 1}, []string{"THEIRS"}
	for why, lines := range map[string][]line{
		"of schema 99":            {newer},
		"the machine thing":       {unknown},
		"none of this config":     {others},
		"a section THEIRS":        {begins(), of("THEIRS", KindMessages), at("theirs.x", 1)},
		`under "theirs.x"`:        {begins(), of("DEAD_LETTERS", KindMessages), at("theirs.x", 1)},
		`"$JS.API.STREAM.PURGE`:   {begins(), of("EVENTS", KindMessages), at("$JS.API.STREAM.PURGE.THEIRS", 1)},
		`under "$KV.other.a"`:     {begins(), of("KV_operations", KindBucket), at("$KV.other.a", 1)},
		`"$KV.operations.>"`:      {begins(), of("KV_operations", KindBucket), at("$KV.operations.>", 1)},
		`a value under "a.b.c.d"`: {begins(), services, at("$KV.services.a.b.c.d", 1)},
		"kind \"magic\"":          {begins(), of("EVENTS", "magic")},
		"a part of a snapshot":    {begins(), of("EVENTS", KindMessages), {Part: []byte("x")}},
	} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			s := installed(t)
			_, err := s.Restore(t.Context(), file(t, lines...))
			require.ErrorContains(t, err, why)
			theirs, err := s.JS.Stream(t.Context(), "THEIRS")
			require.NoError(t, err)
			require.Zero(t, theirs.CachedInfo().State.LastSeq)
		})
	}
}

// An answer of a transition that the value does not have would keep its command from being applied again.
func TestAnswersThatAreNewerThanTheirValueAreLeftOut(t *testing.T) {
	t.Parallel()
	s := installed(t)
	e := service.Machine.New("default", "", "web")
	e.State, e.Version, e.Data = service.Ready, 4, json.RawMessage(`{}`)
	answer := func(version uint64) any {
		return map[string]any{"id": "k", "answer": map[string]any{"version": version}}
	}
	done, err := s.Restore(t.Context(), file(t, begins(), line{Section: &Section{Stream: "KV_services", Kind: KindEntities, Machine: "service"}}, at("$KV.services.default.web", &e),
		of("KV_idempotency", KindAnswers), at("$KV.idempotency.service.default.web.A", answer(4)), at("$KV.idempotency.service.default.web.B", answer(5)),
		at("$KV.idempotency.service.default.lost.C", answer(1)), at("$KV.idempotency.service.default.lost.D", answer(0))))
	require.NoError(t, err)
	require.Equal(t, 1, done.Entities)
	require.Zero(t, done.Parked)
	bucket, err := s.JS.KeyValue(t.Context(), "idempotency")
	require.NoError(t, err)
	keys, err := bucket.Keys(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"service.default.web.A", "service.default.lost.D"}, keys)
}

// Who repeats a command is told the revision of then, also where the value did not say it, because it was its own. And a command that comes again is known by the sequence that it has now: whether
// it has to become a dead letter yet goes by that.
func TestOutcomesAreThoseOfThen(t *testing.T) {
	t.Parallel()
	s := installed(t)
	e := service.Machine.New("default", "", "web")
	e.State, e.Version, e.Mark, e.Data = service.Ready, 4, 5, json.RawMessage(`{}`)
	e.Commands = []machines.Outcome{
		{ID: "before", Seq: 3, Result: machines.Applied, State: service.Ready, Version: 3, Revision: 2},
		{ID: "last", Seq: 5, Result: machines.Dead, State: service.Ready, Version: 4},
		{ID: "none", Seq: 2, Result: machines.Refused},
	}
	waits, value := at(s.Plan.Names.Stored("service", "default.web", "apply"), 1), at("$KV.services.default.web", &e)
	waits.Message.Seq, value.Message.Seq = 5, 7
	_, err := s.Restore(t.Context(), file(t, begins(), of("COMMANDS", KindCommands), waits, line{Section: &Section{Stream: "KV_services", Kind: KindEntities, Machine: "service"}}, value))
	require.NoError(t, err)
	stored, err := kv.Read(t.Context(), s.NC, "services", "default.web")
	require.NoError(t, err)
	restored, err := service.Machine.DecodeAt("default.web", stored.Data)
	require.NoError(t, err)
	var revisions, seqs []uint64
	for _, o := range restored.Commands {
		revisions, seqs = append(revisions, o.Revision), append(seqs, o.Seq)
	}
	require.Equal(t, []uint64{2, 7, 0}, revisions)
	require.Equal(t, []uint64{3, s.held(t, "COMMANDS").FirstSeq, 2}, seqs)
}

// What follows from what the backup lacks is left out: which events those are is told by their sequence, since the clock of the server may be set back. What was refused meanwhile without a value is
// kept, as its answer is.
func TestEventsOfTheMoment(t *testing.T) {
	t.Parallel()
	for what, ends := range map[string]map[string]uint64{"by sequence": {"EVENTS": 5}, "by time, of a backup of before": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s, begun := installed(t), begins()
			begun.Head.Ends = ends
			event := func(id string, version, seq uint64, after time.Duration) line {
				l := at("instar.evt.service.default.web.x", map[string]any{"version": version})
				l.Message.Seq, l.Message.Time, l.Message.Header = seq, begun.Head.At.Add(after), nats.Header{streams.HeaderID: {"service/default.web/" + id}}
				return l
			}
			before := time.Duration(0)
			if ends != nil {
				before = time.Hour // the clock was set back
			}
			done, err := s.Restore(t.Context(), file(t, begun, of("EVENTS", KindMessages), event("3/0", 3, 4, before), event("refused/7/1", 3, 5, before),
				event("refused/8/2", 3, 6, 1), event("4/0", 4, 7, 1), event("refused/9/3", 4, 8, 1)))
			require.NoError(t, err)
			require.Equal(t, 3, done.Events)
			require.Equal(t, 2, done.Newer)
		})
	}
}

// The event of a refusal that is in the outbox of a value, and that the stream does not have yet, is published by the restore: the command is taken, and nobody else tells of it.
func TestARefusalInAnOutboxIsTold(t *testing.T) {
	t.Parallel()
	for what, there := range map[string]int{"none is there": 0, "the refusal is there": 2, "all are there": 3} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := installed(t)
			e := service.Machine.New("default", "", "web")
			e.State, e.Version, e.Mark, e.Data = service.Ready, 4, 6, json.RawMessage(`{}`)
			e.Outbox = []machines.Message{
				{Kind: machines.KindEvent, Name: "x", Version: 4, At: time.Now(), Body: json.RawMessage(`{"version":4}`)},
				{Kind: machines.KindEvent, Name: machines.EventRefused, Version: 4, At: time.Now(), Refusal: 6, Body: json.RawMessage(`{"version":4}`)},
				{Kind: machines.KindEvent, Name: "x", Version: 4, N: 1, At: time.Now(), Body: json.RawMessage(`{"version":4}`)},
			}
			lines := []line{begins(), {Section: &Section{Stream: "KV_services", Kind: KindEntities, Machine: "service"}}, at("$KV.services.default.web", &e), of("EVENTS", KindMessages)}
			var want []string
			for i, m := range e.Outbox {
				w, err := consumers.WriteOf(streams.Names{}, service.Machine, "default.web", "", &m)
				require.NoError(t, err)
				want = append(want, streams.Header(w.Msg.Header, streams.HeaderID))
				if i < there {
					lines = append(lines, line{Message: &Message{Subject: w.Msg.Subject, Seq: uint64(i + 1), Time: time.Now(), Header: w.Msg.Header, Data: w.Msg.Data}})
				}
			}
			_, err := s.Restore(t.Context(), file(t, lines...))
			require.NoError(t, err)
			state := s.held(t, "EVENTS")
			stream, err := s.JS.Stream(t.Context(), "EVENTS")
			require.NoError(t, err)
			var ids []string
			for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
				m, err := stream.GetMsg(t.Context(), seq)
				require.NoError(t, err)
				ids = append(ids, streams.Header(m.Header, streams.HeaderID))
			}
			require.Len(t, ids, len(want)+1, "and that of the restore")
			require.Equal(t, want, ids[:len(want)])
		})
	}
}
