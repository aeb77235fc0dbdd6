package views

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/publish"
)

// tale is a lifecycle with two views of the same events.
type tale struct {
	Told int `json:"told"`
}

type tellBody struct {
	Text string `json:"text"`
}

type wordList struct {
	Words []string `json:"words"`
}

var taleMachine = machines.Define(machines.Definition[tale]{
	Name: "tale", Plural: "tales", Doc: "For tests of views.",
	States: []machines.State[tale]{{Name: "open"}, {Name: "ended", Terminal: true}},
	Inputs: []machines.Command{{Name: "create", Birth: true}, {Name: "end"}, {Name: "tell", Body: tellBody{}}},
	Events: []machines.EventType{
		{Name: "tale.begun", Class: machines.ClassState},
		{Name: "tale.told", Class: machines.ClassProgress},
	},
	Views: []machines.View{
		{Name: "words", Doc: "All words.", Events: []string{"tale.begun", "tale.told"}, Project: projectWords},
		{Name: "newest", Doc: "The last word.", Events: []string{"tale.told"}, Project: func(_ json.RawMessage, _ string, _ machines.Event, data json.RawMessage) (any, error) {
			var b tellBody
			return &b, json.Unmarshal(data, &b)
		}},
	},
	Edges: []machines.Edge[tale]{
		{From: []string{machines.None}, On: "create", To: "open", Emit: []string{"tale.begun"}},
		{From: []string{"open"}, On: "end", To: "ended"},
		{From: []string{"open"}, On: "tell", To: machines.Same, Emit: []string{"tale.told"}, Do: func(t *machines.Tx[tale]) {
			t.Data.Told++
			t.Detail("tale.told", t.Body)
		}},
	},
})

func projectWords(previous json.RawMessage, event string, _ machines.Event, data json.RawMessage) (any, error) {
	var all wordList
	if previous != nil {
		if err := json.Unmarshal(previous, &all); err != nil {
			return nil, err
		}
	}
	if event == "tale.begun" {
		return wordList{Words: []string{}}, nil
	}
	var b tellBody
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, err
	}
	switch b.Text {
	case "fail":
		return nil, errors.New("no word")
	case "panic":
		panic("no word")
	case "keep":
		return nil, nil
	}
	all.Words = append(all.Words, b.Text)
	return all, nil
}

// told publishes an event of a tale by hand.
func (w *world) told(id, text string) uint64 {
	w.T.Helper()
	body, err := json.Marshal(machines.Event{Time: time.Now().UTC(), Data: tellBody{text}})
	require.NoError(w.T, err)
	return w.Publish(&nats.Msg{Subject: "instar.evt.tale.default." + id + ".tale.told", Data: body, Header: nats.Header{"ce-type": {"tale.told"}}})
}

// view is the folded value of an entity, and its revision.
func (w *world) view(bucket, id string) (machines.Folded, uint64) {
	w.T.Helper()
	var f machines.Folded
	m, err := streams.Last(w.Ctx, w.NC, "KV_"+bucket, "$KV."+bucket+".default."+id)
	if err != nil || m == nil {
		return f, 0
	}
	if json.Unmarshal(m.Data, &f) != nil {
		return f, m.Sequence
	}
	return f, m.Sequence
}

func (w *world) words(id string) []string {
	w.T.Helper()
	f, _ := w.view("tales_words", id)
	var all wordList
	if f.Value != nil {
		require.NoError(w.T, json.Unmarshal(f.Value, &all))
	}
	return all.Words
}

// folding runs views until stop.
func (w *world) folding(v *Views) (stop func()) {
	ctx, cancel := context.WithCancel(w.Ctx)
	var done sync.WaitGroup
	v.Deps = w.Deps
	done.Go(func() { _ = v.Run(ctx) })
	w.T.Cleanup(func() { cancel(); done.Wait() })
	return func() { cancel(); done.Wait() }
}

func TestEventsReachTheirViews(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, taleMachine).start()
	w.folding(&Views{})
	const entities, each = 8, 12
	var want []string
	for i := range each {
		want = append(want, fmt.Sprint(i))
	}
	var all sync.WaitGroup
	for n := range entities {
		all.Go(func() {
			key := fmt.Sprintf("default.e-%d", n)
			w.Persist(publish.Command{Machine: "tale", Key: key, Name: "create"}, "c")
			for i := range each {
				w.Persist(publish.Command{Machine: "tale", Key: key, Name: "tell", Body: []byte(fmt.Sprintf(`{"text":"%d"}`, i))}, fmt.Sprint(i))
			}
		})
	}
	all.Wait()
	for n := range entities {
		id := fmt.Sprintf("e-%d", n)
		w.Eventually("all words", func() bool { return len(w.words(id)) == each })
		require.Equal(t, want, w.words(id))
		w.Eventually("the last word", func() bool { f, _ := w.view("tales_newest", id); return string(f.Value) == `{"text":"11"}` })
		f, _ := w.view("tales_words", id)
		held := w.Stream(streams.EventStream, "instar.evt.tale.default."+id+".>")
		require.Equal(t, held[len(held)-1].Sequence, f.Seq)
		require.WithinDuration(t, held[len(held)-1].Time, f.At, time.Minute)
	}
}

// What cannot be folded is left out of the view that it is no good for; the other view and the other entities go on.
func TestWhatCannotBeFoldedIsLeftOut(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, taleMachine)
	w.folding(&Views{Batch: 1})
	for _, text := range []string{"one", "fail", "two", "panic", "three", "keep"} {
		w.told("a", text)
	}
	for _, body := range []string{"", "{", "[]", `{"data":7}`, `{"data":{"text":7}}`, `null`} {
		w.Publish(&nats.Msg{Subject: "instar.evt.tale.default.a.tale.told", Data: []byte(body), Header: nats.Header{"ce-type": {"tale.told"}}})
	}
	for _, subject := range []string{"instar.evt.tale.default.UPPER.tale.told", "instar.evt.tale.-.a.tale.told"} {
		w.Publish(&nats.Msg{Subject: subject, Data: []byte("{}")})
	}
	seq := w.told("a", "four")
	w.told("b", "other")
	w.Eventually("the last", func() bool { f, _ := w.view("tales_words", "a"); return f.Seq == seq })
	require.Equal(t, []string{"one", "two", "three", "four"}, w.words("a"))
	w.Eventually("the others", func() bool { return len(w.words("b")) == 1 })
	w.Eventually("the newest", func() bool { f, _ := w.view("tales_newest", "a"); return string(f.Value) == `{"text":"four"}` })
}

// Deliveries come again, from the first one on: nothing is folded twice, nothing is even written.
func TestEventsThatComeAgainAreIgnored(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, taleMachine)
	stop := w.folding(&Views{})
	for i := range 5 {
		w.told("a", fmt.Sprint(i))
	}
	want := []string{"0", "1", "2", "3", "4"}
	w.Eventually("five words", func() bool { return len(w.words("a")) == 5 })
	_, revision := w.view("tales_words", "a")
	stop()
	require.NoError(t, w.JS.DeleteConsumer(w.Ctx, streams.EventStream, "view-tale-words"))
	w.folding(&Views{})
	w.told("b", "behind them")
	w.Eventually("all came again", func() bool { return len(w.words("b")) == 1 })
	require.Equal(t, want, w.words("a"))
	_, again := w.view("tales_words", "a")
	require.Equal(t, revision, again)
}

// A process took events and was killed before it wrote them. What comes later must not overtake them: the view would
// take them for folded.
func TestWhatWasTakenAndNotFoldedComesFirst(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, taleMachine)
	w.folding(&Views{})()
	w.Eventually("the consumer is there", func() bool {
		stop := w.folding(&Views{})
		defer stop()
		_, err := w.JS.Consumer(w.Ctx, streams.EventStream, "view-tale-words")
		return err == nil
	})
	for i := range 3 {
		w.told("a", fmt.Sprint(i))
	}
	cons, err := w.JS.Consumer(w.Ctx, streams.EventStream, "view-tale-words")
	require.NoError(t, err)
	batch, err := cons.Fetch(3)
	require.NoError(t, err)
	n := 0
	for range batch.Messages() {
		n++
	}
	require.Equal(t, 3, n) // and it dies here
	seq := w.told("a", "3")
	w.folding(&Views{})
	w.Eventually("the last", func() bool { f, _ := w.view("tales_words", "a"); return f.Seq == seq })
	require.Equal(t, []string{"0", "1", "2", "3"}, w.words("a"))
}

// Two processes take from the same consumer for a while, and one of them is slow.
func TestTwoFoldersLoseNothing(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, taleMachine)
	stop := w.folding(&Views{Batch: 3})
	w.folding(&Views{Batch: 2})
	const n = 300
	for i := range n {
		w.told(fmt.Sprintf("e-%d", i%3), fmt.Sprint(i))
		if i == n/2 {
			stop()
		}
	}
	for e := range 3 {
		var want []string
		for i := e; i < n; i += 3 {
			want = append(want, fmt.Sprint(i))
		}
		id := fmt.Sprintf("e-%d", e)
		w.Eventually("all words of "+id, func() bool { words := w.words(id); return len(words) > 0 && words[len(words)-1] == want[len(want)-1] })
		require.Equal(t, want, w.words(id))
	}
}

func TestACorruptViewIsBegunAnew(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, taleMachine)
	bucket, err := w.JS.KeyValue(w.Ctx, "tales_words")
	require.NoError(t, err)
	_, err = bucket.Put(w.Ctx, "default.a", []byte("{not"))
	require.NoError(t, err)
	w.folding(&Views{})
	w.told("a", "new")
	w.told("b", "other")
	w.Eventually("both", func() bool { return len(w.words("a")) == 1 && len(w.words("b")) == 1 })
	require.Equal(t, []string{"new"}, w.words("a"))
}

func TestViewsGoOnAfterTheServerWasAway(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, taleMachine)
	w.folding(&Views{})
	w.told("a", "before")
	w.Eventually("the first", func() bool { return len(w.words("a")) == 1 })
	require.NoError(t, w.Server.Restart())
	w.Eventually("the connection is back", w.NC.IsConnected)
	w.told("a", "after")
	w.Eventually("the second", func() bool { return len(w.words("a")) == 2 })
	require.Equal(t, []string{"before", "after"}, w.words("a"))
	// Somebody deletes the consumer: it is made again.
	require.NoError(t, w.JS.DeleteConsumer(w.Ctx, streams.EventStream, "view-tale-words"))
	w.told("a", "later")
	w.Eventually("the third", func() bool { return len(w.words("a")) == 3 })
}

// The views of a machine that is added while the others are folded are folded, too.
func TestTheViewsOfAMachineThatIsAdded(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	w.folding(&Views{})
	plan := streams.Plan{States: []string{taleMachine.Plural}}
	for _, v := range taleMachine.Views {
		plan.Views = append(plan.Views, taleMachine.BucketOf(v))
	}
	_, err := streams.Ensure(w.Ctx, w.JS, plan)
	require.NoError(t, err)
	require.NoError(t, w.Machines.Add(taleMachine))
	seq := w.told("a", "one")
	w.Eventually("it is folded", func() bool { f, _ := w.view("tales_words", "a"); return f.Seq == seq })
}
