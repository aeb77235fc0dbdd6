package views

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// numbered publishes the n-th event of a version of a tale, as the engine does.
func (w *world) numbered(at time.Time, version, n int, text string) {
	w.T.Helper()
	body, err := json.Marshal(machines.Event{Version: uint64(version), Time: at, Data: tellBody{text}})
	require.NoError(w.T, err)
	m := &nats.Msg{Subject: "instar.evt.tale.default.a.tale.told", Data: body, Header: nats.Header{}}
	streams.CloudEvent(m, fmt.Sprintf("tale/default.a/%d/%d", version, n), "/instar/tale/default.a", "tale.told", "default.a", at)
	w.Publish(m)
}

// anew deletes EVENTS and makes it again, so that it gives out its sequences again.
func (w *world) anew() {
	w.T.Helper()
	s, err := w.JS.Stream(w.Ctx, streams.EventStream)
	require.NoError(w.T, err)
	config := s.CachedInfo().Config
	w.Eventually("an empty stream", func() bool { // nats-server 2.15.2 may write the state of the deleted stream into the directory of the new one
		require.NoError(w.T, w.JS.DeleteStream(w.Ctx, streams.EventStream))
		s, err := w.JS.CreateStream(w.Ctx, config)
		require.NoError(w.T, err)
		return s.CachedInfo().State.LastSeq == 0
	})
}

// EVENTS is made anew, or loses its end. What comes under sequences that a view has had is folded all the same; what is
// published again is not; and where the entity has lost its last versions, too, those that come instead are.
func TestSequencesOfEventsThatAreGivenOutAgain(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, taleMachine)
	w.folding(&Views{})
	dawn := time.Now().UTC().Add(-time.Hour)
	at := func(second int) time.Time { return dawn.Add(time.Duration(second) * time.Second) }
	reach := func(want ...string) {
		t.Helper()
		w.Eventually("the last word", func() bool { words := w.words("a"); return len(words) > 0 && words[len(words)-1] == want[len(want)-1] })
		require.Equal(t, want, w.words("a"))
	}
	for i := 1; i <= 5; i++ {
		w.numbered(at(i), i, 0, fmt.Sprint(i))
	}
	w.numbered(at(5), 5, 1, "5b")
	reach("1", "2", "3", "4", "5", "5b")

	w.anew()
	w.numbered(at(4), 4, 0, "4")
	w.numbered(at(5), 5, 0, "5")
	w.numbered(at(5), 5, 1, "5b")
	w.numbered(at(5), 6, 0, "6") // two in one moment
	reach("1", "2", "3", "4", "5", "5b", "6")

	w.anew()
	w.numbered(at(7), 5, 0, "5 again")
	w.numbered(at(8), 6, 0, "6 again")
	reach("1", "2", "3", "4", "5", "5b", "6", "5 again", "6 again")

	w.anew()
	w.numbered(at(1), 7, 0, "7") // the clock of another leader
	w.numbered(at(1), 7, 1, "7b")
	reach("1", "2", "3", "4", "5", "5b", "6", "5 again", "6 again", "7", "7b")
	require.NoError(t, w.JS.DeleteConsumer(w.Ctx, streams.EventStream, "view-tale-words")) // they come again
	w.numbered(at(2), 8, 0, "8")
	reach("1", "2", "3", "4", "5", "5b", "6", "5 again", "6 again", "7", "7b", "8")
}

// A value that an earlier program wrote has no number: its events are told by their sequences.
func TestAViewWithoutNumbersGoesOn(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, taleMachine)
	dawn := time.Now().UTC()
	for i := 1; i <= 3; i++ {
		w.numbered(dawn.Add(time.Duration(i)*time.Second), i, 0, fmt.Sprint(i))
	}
	bucket, err := w.JS.KeyValue(w.Ctx, "tales_words")
	require.NoError(t, err)
	_, err = bucket.Put(w.Ctx, "default.a", fmt.Appendf(nil, `{"seq":2,"at":%q,"value":{"words":["1","2"]}}`, dawn.Add(2*time.Second).Format(time.RFC3339Nano)))
	require.NoError(t, err)
	w.folding(&Views{})
	w.Eventually("the third", func() bool { return len(w.words("a")) == 3 })
	require.Equal(t, []string{"1", "2", "3"}, w.words("a"))
}

// A value that grows beyond what a bucket takes does not stop its view: the event that is too much is left out, those before
// and behind it in the same batch are not, and other entities go on.
func TestAViewWithoutRoomGoesOn(t *testing.T) {
	t.Parallel()
	w, n := noted(t, taleMachine)
	huge := strings.Repeat("x", 600<<10)
	for _, text := range []string{"one", huge, "two", huge, "three"} {
		w.told("a", text)
	}
	w.told("b", "other")
	w.folding(&Views{})
	w.Eventually("the other", func() bool { return len(w.words("b")) == 1 })
	require.Equal(t, []string{"one", huge, "two", "three"}, w.words("a"))
	require.Equal(t, 1, n.Count("skipped view-tale-words"))
	require.Zero(t, n.Count("restarted view-tale-words"))
}

// The server cannot read one value of a view: its events are left out after a bound of tries, and those of others are folded.
func TestAnUnreadableValueDoesNotStopItsView(t *testing.T) {
	t.Parallel()
	w, n := attached(t, `jetstream: enabled, mappings: { "$JS.API.STREAM.MSG.GET.KV_tales_newest": "fault.read" }`, taleMachine)
	sub, err := w.NC.Subscribe("fault.read", func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`))
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Unsubscribe() })
	_, err = w.JS.Publish(w.Ctx, "$KV.tales_newest.default.a", []byte(`{"seq":0,"value":null}`))
	require.NoError(t, err)
	w.told("a", "one")
	w.told("b", "other")
	w.folding(&Views{})
	bucket, err := w.JS.Stream(w.Ctx, "KV_tales_newest")
	require.NoError(t, err)
	w.Eventually("the other is written", func() bool {
		written, err := streams.Holds(w.Ctx, bucket, "$KV.tales_newest.default.b")
		return err == nil && written
	})
	require.Equal(t, 1, n.Count("skipped view-tale-newest"))
	require.Equal(t, consumers.MaxTries-1, n.Count("restarted view-tale-newest"))
}

// The oldest events go while a view is behind: it says so, whether it is folding or not, and not of those that it has.
func TestEventsThatGoBeforeAViewHasThemAreTold(t *testing.T) {
	t.Parallel()
	w, n := noted(t, taleMachine)
	f := &folder{v: &Views{Deps: w.Deps.WithDefaults(), Batch: 1}, m: taleMachine, view: taleMachine.Views[0], name: consumers.ViewName(taleMachine, taleMachine.Views[0]), failures: map[string]int{}}
	events, err := w.JS.Stream(w.Ctx, streams.EventStream)
	require.NoError(t, err)
	config := events.CachedInfo().Config
	config.FirstSeq = 1000 // as one that was restored
	require.NoError(t, w.JS.DeleteStream(w.Ctx, streams.EventStream))
	_, err = w.JS.CreateStream(w.Ctx, config)
	require.NoError(t, err)
	said := 0
	tell := func(count int) {
		for range count {
			said++
			w.told("a", fmt.Sprint(said))
		}
	}
	other := func() {
		said++
		w.Publish(&nats.Msg{Subject: "instar.evt.thing.default.a.thing.made", Data: []byte("{}")})
	}
	goes := func(upTo int) { // as when it is full
		config.MaxMsgs = int64(said - upTo)
		_, err := w.JS.UpdateStream(w.Ctx, config)
		require.NoError(t, err)
		config.MaxMsgs = -1
		_, err = w.JS.UpdateStream(w.Ctx, config)
		require.NoError(t, err)
	}
	tell(4)
	other()
	tell(1)
	require.NoError(t, f.open(w.Ctx))
	_, err = w.JS.ResetConsumerToSequence(w.Ctx, streams.EventStream, f.name, 1) // a cluster says so of one that was just made
	require.NoError(t, err)
	require.NoError(t, f.open(w.Ctx))
	folds := func(word string, told int) {
		t.Helper()
		require.NoError(t, f.batch(w.Ctx))
		words := w.words("a")
		require.Equal(t, word, words[len(words)-1])
		require.Equal(t, told, n.Count("skipped "+f.name))
	}
	folds("1", 0)
	goes(2)
	folds("3", 1)
	folds("4", 1)
	require.NoError(t, f.open(w.Ctx))
	folds("6", 1)
	other()
	tell(1)
	goes(7)
	folds("8", 1)
	tell(2)
	goes(9)
	w.Eventually("the consumer has heard of it", func() bool {
		info, err := w.JS.Consumer(w.Ctx, streams.EventStream, f.name)
		return err == nil && info.CachedInfo().NumPending == 1
	})
	require.NoError(t, f.open(w.Ctx))
	folds("10", 2)
}

// A view that is built anew reads the events of what was dropped, and has nothing of it but of a later life.
func TestAViewThatIsBuiltAnewHasNothingOfWhatWasDropped(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, taleMachine)
	dawn := time.Now().UTC().Add(-time.Hour)
	e := taleMachine.New("default", "", "a")
	e.State, e.Version, e.Data = "ended", 2, nil
	note, err := e.AppendJSON(nil)
	require.NoError(t, err)
	require.NoError(t, w.Appender.Append(w.Ctx, []publish.Write{kv.Drop("tales", "default.a", note, time.Hour)})[0].Err)
	w.numbered(dawn, 1, 0, "1")
	w.numbered(dawn, 2, 0, "2")
	w.told("b", "other")
	stop := w.folding(&Views{})
	w.Eventually("the other", func() bool { return len(w.words("b")) == 1 })
	got, err := kv.Read(w.Ctx, w.NC, "tales_words", "default.a")
	require.NoError(t, err)
	require.Nil(t, got)
	stop()
	require.NoError(t, w.JS.DeleteConsumer(w.Ctx, streams.EventStream, "view-tale-words"))
	w.numbered(dawn, 3, 0, "3")
	w.folding(&Views{})
	w.Eventually("the next life", func() bool { return len(w.words("a")) > 0 })
	require.Equal(t, []string{"3"}, w.words("a"))
}
