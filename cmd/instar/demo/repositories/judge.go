package repositories

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines/task"
)

// board are the states of tasks, by <repository>.<task>.
type board map[string]string

// count is how many tasks of that name are in the state; empty is any name.
func (b board) count(id, state string) (n int) {
	for key, s := range b {
		if s == state && (id == "" || strings.HasSuffix(key, "."+id)) {
			n++
		}
	}
	return n
}

// look asks for all tasks.
func (d *tasksDemo) look(ctx context.Context) (board, error) {
	var page struct {
		Items []struct{ ID, Parent, State string }
	}
	if err := d.Ask(ctx, http.MethodGet, "/v1/tasks?limit=500", nil, &page); err != nil {
		return nil, err
	}
	b := board{}
	for _, t := range page.Items {
		b[t.Parent+"."+t.ID] = t.State
	}
	return b, nil
}

// follow shows the board until something is true, or a task has failed that is not meant to.
func (d *tasksDemo) follow(ctx context.Context, what string, done func(board) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 12*time.Minute) // a clone may take ten
	defer cancel()
	for {
		b, err := d.look(ctx)
		if err == nil {
			d.show(b)
			if done(b) {
				return nil
			}
			if err := d.failed(ctx, b); err != nil {
				return err
			}
		}
		if wait.Pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("it took too long until %s: %v", what, b)
		}
	}
}

// failed says of a clone or an analysis that has failed for good why.
func (d *tasksDemo) failed(ctx context.Context, b board) error {
	for key, state := range b {
		if name, id, _ := strings.Cut(key, "."); state == task.Failed && (id == "clone" || slices.Contains(tasksAnalyses, id)) {
			var e struct{ LastError struct{ Message string } }
			return errors.Join(d.Ask(ctx, http.MethodGet, "/v1/repositories/"+name+"/tasks/"+id, nil, &e), fmt.Errorf("task %s of repository %s has failed: %s", id, name, e.LastError.Message))
		}
	}
	return nil
}

var marks = map[string]string{task.Pending: ".", task.Queued: "q", task.Running: "R", task.Succeeded: "ok", task.Failed: "FAILED", task.Canceled: "canceled"}

// show draws the board where it was, or tells what has changed where that cannot be done.
func (d *tasksDemo) show(b board) {
	keys := slices.Sorted(maps.Keys(b))
	if maps.Equal(b, d.seen) {
		return
	}
	before := d.seen
	d.seen = maps.Clone(b)
	if !d.live {
		for _, key := range keys {
			if b[key] != before[key] && (b[key] == task.Running || b[key] == task.Failed || b[key] == task.Canceled) {
				d.tell("%-24s %s", key, b[key])
			}
		}
		return
	}
	if d.drawn > 0 {
		fmt.Fprintf(d.out, "\x1b[%dA", d.drawn)
	}
	d.drawn = 0
	for _, name := range d.names {
		fmt.Fprintf(d.out, "\x1b[2K  %-10s", name)
		for _, key := range keys {
			if id, ok := strings.CutPrefix(key, name+"."); ok {
				fmt.Fprintf(d.out, "  %s %s", id, cmp.Or(marks[b[key]], b[key]))
			}
		}
		fmt.Fprintln(d.out)
		d.drawn++
	}
}

// span is the time in which an attempt held a place.
type span struct {
	repository string
	from, to   time.Time
}

// judge reads the events: limits hold at each moment, and each attempt that began has ended once.
func (d *tasksDemo) judge(ctx context.Context) error {
	b, err := d.look(ctx)
	if err != nil {
		return err
	}
	var spans []span
	for key := range b {
		repository, id, _ := strings.Cut(key, ".")
		var page struct {
			Items []struct {
				From, To string
				Time     time.Time
			}
		}
		if err := d.Ask(ctx, http.MethodGet, "/v1/repositories/"+url.PathEscape(repository)+"/tasks/"+url.PathEscape(id)+"/events?limit=500", nil, &page); err != nil {
			return err
		}
		var open *span
		for _, e := range page.Items {
			switch {
			case e.From != task.Running && e.To == task.Running:
				if open != nil {
					return fmt.Errorf("an attempt of %s began before the one before had ended", key)
				}
				open = &span{repository: repository, from: e.Time}
			case e.From == task.Running && e.To != task.Running && open != nil:
				open.to = e.Time
				spans, open = append(spans, *open), nil
			}
		}
		if open != nil {
			return fmt.Errorf("an attempt of %s has not ended", key)
		}
	}
	all, one := together(spans), 0
	for _, name := range d.names {
		one = max(one, together(slices.DeleteFunc(slices.Clone(spans), func(s span) bool { return s.repository != name })))
	}
	if all > tasksAtATime || one > ofRepository {
		return fmt.Errorf("limits were exceeded: %d tasks at a time (at most %d), %d of a repository (at most %d)", all, tasksAtATime, one, ofRepository)
	}
	fmt.Fprintf(d.out, "%d tasks, %d attempts, each ended once · at most %d at a time (limit %d), %d of a repository (limit %d) · %d kill · 1 canceled, 1 redriven · %d repositories completed\n",
		len(b), len(spans), all, tasksAtATime, one, ofRepository, d.kills, len(d.names))
	return nil
}

// together is how many of them overlap at most. One that ends when another begins does not overlap it.
func together(spans []span) (most int) {
	type edge struct {
		at   time.Time
		step int
	}
	var edges []edge
	for _, s := range spans {
		edges = append(edges, edge{s.from, 1}, edge{s.to, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.step, b.step)) })
	now := 0
	for _, e := range edges {
		now += e.step
		most = max(most, now)
	}
	return most
}
