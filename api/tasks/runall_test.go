package tasks

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

// Where a command brings no answer, run-all says what is queued, and what is not known or was not asked.
func TestRunAllSaysWhatIsQueued(t *testing.T) {
	t.Parallel()
	var items []index.Item
	for _, id := range []string{"a", "b", "c", "d"} {
		items = append(items, index.Item{Key: "default.shop." + id, State: task.Pending, Value: &task.Brief{Type: "lint"}})
	}
	items = append(items, index.Item{Key: "default.shop.e", State: task.Running, Value: &task.Brief{Type: "lint"}})
	run := func(fails map[string]error) (*Enqueued, []string, error) {
		var asked []string
		out, err := (&RunAll{}).run(items, &publish.Command{}, ways{
			admit: func(publish.Command) *problem.Problem { return nil },
			ask: func(cmd publish.Command) (machines.Answer, error) {
				asked = append(asked, jobOf(cmd.Key))
				return machines.Answer{}, fails[jobOf(cmd.Key)]
			},
		})
		return out, asked, err
	}
	out, asked, err := run(map[string]error{"shop.c": problem.Unavailable("the engine is away")})
	require.NoError(t, err)
	require.Equal(t, []string{"shop.a", "shop.b", "shop.c"}, asked)
	require.Equal(t, &Enqueued{Enqueued: 2, Jobs: []string{"shop.a", "shop.b"}, Batch: out.Batch, Skipped: []Skipped{
		{"shop.c", "the engine is away"}, {"shop.d", notAsked}, {"shop.e", "it is running"},
	}, Incomplete: true}, out)
	require.NotEmpty(t, out.Batch)

	out, _, err = run(map[string]error{"shop.a": &publish.AcceptedError{}})
	require.NoError(t, err)
	require.Equal(t, Skipped{"shop.a", "it is asked for, and brought no answer in time"}, out.Skipped[0], "it is queued in this batch")

	out, _, err = run(map[string]error{"shop.a": fmt.Errorf("%w within 5s", publish.ErrUnanswered)})
	require.NoError(t, err)
	require.Contains(t, out.Skipped[0].Reason, "may be asked for all the same", "nobody knows: its batch has a name")
	require.True(t, out.Incomplete)
	require.NotEmpty(t, out.Batch)

	for _, broken := range []error{problem.Unavailable("this request stored nothing"), fmt.Errorf("%w: %w", publish.ErrUnanswered, publish.ErrGated)} {
		_, asked, err = run(map[string]error{"shop.a": broken})
		require.ErrorIs(t, err, broken, "nothing is stored")
		require.Equal(t, []string{"shop.a"}, asked)
	}
	out, _, err = run(nil)
	require.NoError(t, err)
	require.False(t, out.Incomplete)
}

// Only tasks that would be asked count: no more than can be asked one after the other, whatever else the repository has, or had.
func TestRunAllCountsWhatItAsks(t *testing.T) {
	t.Parallel()
	with := func(counts map[string]int) func(index.Query) index.Page {
		var all []index.Item
		for state, n := range counts {
			for i := range n {
				all = append(all, index.Item{Key: fmt.Sprintf("default.shop.%s-%05d", state, i), State: state, Value: &task.Brief{Type: "lint", SortOrder: -i}})
			}
		}
		slices.SortFunc(all, func(a, b index.Item) int { return strings.Compare(a.Key, b.Key) })
		return func(q index.Query) (p index.Page) {
			for _, i := range all {
				if i.Key <= q.After || !slices.Contains(q.States, i.State) {
					continue
				}
				if len(p.Items) == q.Limit {
					p.Next = p.Items[q.Limit-1].Key
					return p
				}
				p.Items = append(p.Items, i)
			}
			return p
		}
	}
	repo := index.Query{Namespace: "default", Parent: "shop"}
	items, more, err := (&RunAll{}).tasks(with(map[string]int{task.Deleted: 3000, task.Succeeded: 2500, task.Pending: 600, task.Failed: 400}), repo)
	require.NoError(t, err)
	require.Len(t, items, 2000, "some of those that are skipped are told")
	require.Equal(t, 1500, more, "and how many more there are")
	require.Equal(t, "default.shop.succeeded-00999", items[0].Key, "by sortOrder")
	_, _, err = (&RunAll{Again: true}).tasks(with(map[string]int{task.Succeeded: 1001}), repo)
	require.ErrorContains(t, err, "more than 1000 tasks")
	_, _, err = (&RunAll{}).tasks(with(map[string]int{task.Pending: 1001}), repo)
	require.ErrorContains(t, err, "more than 1000 tasks")
	_, _, err = (&RunAll{Types: []string{"lint", "test"}}).tasks(with(map[string]int{task.Pending: 1}), repo)
	require.ErrorContains(t, err, `no task of the repository has the type "test"; there are lint`)
	_, _, err = (&RunAll{Types: []string{"test"}}).tasks(with(map[string]int{task.Pending: 1001}), repo)
	require.ErrorContains(t, err, `the type "test"`, "no others are counted")
}
