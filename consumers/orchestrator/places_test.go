package orchestrator

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams/publish"
)

func empty() *Board {
	ix := index.New(nil, "", nil, index.Options{})
	return &Board{Tasks: ix, Queues: ix, Repositories: ix}
}

// A place, and the unique key with it, is there until it is known what became of its command: no longer where that has queued nothing, and until it is seen where it has.
func TestAPlaceLastsAsLongAsItsCommand(t *testing.T) {
	t.Parallel()
	brief := &task.Brief{Type: "noop", UniqueKey: "k"}
	seen := func(b *Board, state string, revision uint64) {
		b.take(index.Item{Key: "default.a.one", State: state, Revision: revision, Value: brief}, false)
	}
	applied := &machines.Answer{Outcome: machines.Applied, Revision: 5}
	held := Obstacle{Holder: "default.a.one"}
	asked := Obstacle{Holder: "default.a.one", Asked: true}
	for name, c := range map[string]struct {
		does func(b *Board, p *Place)
		want Obstacle
	}{
		"under way":  {func(*Board, *Place) {}, asked},
		"not sent":   {func(_ *Board, p *Place) { p.Left(nil, nil) }, Obstacle{}},
		"refused":    {func(_ *Board, p *Place) { p.Left(&machines.Answer{Outcome: machines.Refused}, nil) }, Obstacle{}},
		"not stored": {func(_ *Board, p *Place) { p.Left(nil, fmt.Errorf("%w: %w", publish.ErrUnanswered, publish.ErrGated)) }, Obstacle{}},
		"full":       {func(_ *Board, p *Place) { p.Left(nil, &publish.RefusedError{Code: 10023}) }, Obstacle{}},
		"full at the last try": {func(_ *Board, p *Place) {
			p.Left(nil, errors.Join(publish.ErrUnanswered, &publish.RefusedError{Code: 10023}))
		}, asked},
		"applied":              {func(_ *Board, p *Place) { p.Left(applied, nil) }, asked},
		"seen before":          {func(b *Board, p *Place) { p.Left(applied, nil); seen(b, task.Failed, 4) }, asked},
		"seen":                 {func(b *Board, p *Place) { p.Left(applied, nil); seen(b, task.Queued, 5) }, held},
		"ended":                {func(b *Board, p *Place) { p.Left(applied, nil); seen(b, task.Succeeded, 7) }, Obstacle{}},
		"overtaken":            {func(b *Board, p *Place) { seen(b, task.Succeeded, 7); p.Left(applied, nil) }, Obstacle{}},
		"unanswered":           {func(_ *Board, p *Place) { p.Left(nil, publish.ErrUnanswered) }, asked},
		"unanswered, and seen": {func(b *Board, p *Place) { p.Left(nil, publish.ErrUnanswered); seen(b, task.Succeeded, 7) }, Obstacle{}},
		"unanswered, and over": {func(b *Board, p *Place) { p.Left(nil, publish.ErrUnanswered); p.until = time.Now() }, Obstacle{}},
		"followed anew":        {func(b *Board, p *Place) { b.begin(); p.Left(applied, nil) }, asked},
	} {
		b := empty()
		p, o := b.Place("default.a.one", brief)
		require.Zero(t, o, name)
		c.does(b, p)
		require.Equal(t, c.want, b.Obstacle("default.a.two", brief), name)
		if c.want != (Obstacle{}) {
			require.Equal(t, map[string]int{"queue default.cluster": 1, "queue default.all": 1, "queue default.type-noop": 1, "queue default.pool-nodes": 1, "repository default.a": 1}, b.queued, "%s: it counts once", name)
			continue
		}
		require.Equal(t, [4]int{}, [4]int{len(b.queued), len(b.uniques), len(b.given), len(b.at)}, "%s: nothing is left", name)
	}
}

// What becomes of one command takes nothing from another one of the same task.
func TestACommandTakesNoPlaceOfAnother(t *testing.T) {
	t.Parallel()
	b := empty()
	brief := &task.Brief{Type: "noop", UniqueKey: "k"}
	_, o := b.Place("default.a.one", brief)
	require.Zero(t, o)
	again, o := b.Place("default.a.one", &task.Brief{Type: "noop", UniqueKey: "other"})
	require.Zero(t, o)
	again.Left(nil, nil)
	require.Equal(t, Obstacle{Holder: "default.a.one", Asked: true}, b.Obstacle("default.a.two", brief))
	require.Equal(t, 1, b.queued["queue default.all"])
}

// A pool that was let in, and has got no task, keeps nobody out.
func TestPoolsOfNoTaskKeepNobodyOut(t *testing.T) {
	t.Parallel()
	b := empty()
	var all []*Place
	for i := range MaxPools {
		p, o := b.Place(fmt.Sprint("default.a.t", i), &task.Brief{Type: "noop", Pool: fmt.Sprint("p", i)})
		require.Zero(t, o)
		all = append(all, p)
	}
	another := &task.Brief{Type: "noop", Pool: "another"}
	require.Equal(t, Obstacle{Crowded: true}, b.Obstacle("default.a.more", another))
	require.Zero(t, b.Obstacle("default.a.more", &task.Brief{Type: "noop", Pool: "p1"}))
	all[3].Left(nil, nil)
	require.Zero(t, b.Obstacle("default.a.more", another))
}
