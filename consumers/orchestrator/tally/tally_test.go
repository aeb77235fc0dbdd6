package tally_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/consumers/orchestrator/tally"
	"github.com/bcc94042/instar/machines/repository"
)

// scratch counts all tasks from the beginning, and derives the state by the four rules, written down a second time.
func scratch(s repository.Spec, tasks map[string]repository.Of) (repository.Counts, string) {
	var c repository.Counts
	types := map[string]bool{}
	anyFailed := false
	for _, t := range tasks {
		c.Add(&s, t)
		if (t.ID != repository.CloneTask || s.URL == "") && t.State != "deleting" {
			types[t.Type] = true
			anyFailed = anyFailed || t.State == "failed"
		}
	}
	c.Miss(&s, func(typ string) bool { return types[typ] })
	required := func(t repository.Of) bool {
		if len(s.Required) == 0 {
			return !t.Optional
		}
		for _, typ := range s.Required {
			if typ == t.Type {
				return true
			}
		}
		return false
	}
	if clone, is := tasks[repository.CloneTask]; s.URL != "" {
		switch {
		case is && (clone.State == "queued" || clone.State == "running"):
			return c, "cloning"
		case is && clone.State == "failed":
			return c, "error"
		case !is || !clone.HasResult:
			return c, "pending"
		}
	}
	active, requiredFailed, all, some := false, false, true, false
	for _, t := range tasks {
		if s.URL != "" && t.ID == repository.CloneTask || t.State == "deleting" {
			continue
		}
		active = active || t.State == "queued" || t.State == "running"
		if required(t) {
			some = true
			requiredFailed = requiredFailed || t.State == "failed"
			all = all && t.State == "succeeded"
		}
	}
	for _, typ := range s.Required {
		all = all && types[typ]
	}
	switch {
	case active:
		return c, "analyzing"
	case requiredFailed || s.Strict && anyFailed:
		return c, "error"
	case some && all:
		return c, "completed"
	}
	return c, "ready"
}

func TestAnySequenceCountsAsFromTheBeginning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ty := tally.New()
		specs, tasks := map[string]repository.Spec{}, map[string]map[string]repository.Of{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"ns.a", "ns.b"}).Draw(t, "repository")
			if tasks[name] == nil {
				tasks[name] = map[string]repository.Of{}
			}
			id := rapid.SampledFrom([]string{"clone", "t1", "t2", "t3"}).Draw(t, "task")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				s := repository.Spec{
					URL: rapid.SampledFrom([]string{"", "/srv/a"}).Draw(t, "url"), Strict: rapid.Bool().Draw(t, "strict"),
					Required: rapid.SampledFrom([][]string{nil, {"x"}, {"x", "y"}, {"z", "z"}}).Draw(t, "required"),
				}
				specs[name] = s
				ty.SetSpec(name, s)
			case 1:
				_, known := tasks[name][id]
				require.Equal(t, known, ty.Remove(name, id))
				delete(tasks[name], id)
				ty.Forget(name)
				if len(tasks[name]) == 0 {
					ty.SetSpec(name, specs[name])
				}
			default:
				of := repository.Of{
					ID: id, Type: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "type"), Optional: rapid.Bool().Draw(t, "optional"), HasResult: rapid.Bool().Draw(t, "result"),
					State: rapid.SampledFrom([]string{"pending", "queued", "running", "succeeded", "failed", "canceled", "deleting"}).Draw(t, "state"),
				}
				old, was := tasks[name][id]
				require.Equal(t, !was || old != of, ty.Set(name, of))
				tasks[name][id] = of
			}
			for name := range tasks {
				s := specs[name]
				want, state := scratch(s, tasks[name])
				got := ty.Counts(name)
				require.Equal(t, want, got, fmt.Sprintf("%s %+v %+v", name, s, tasks[name]))
				require.Equal(t, state, (&repository.Data{Spec: s}).Derive(&got), fmt.Sprintf("%s %+v %+v", name, s, tasks[name]))
				require.Len(t, ty.Tasks(name), len(tasks[name]))
				if failed := ty.Failed(name); state == "error" {
					require.Equal(t, "failed", tasks[name][failed].State, fmt.Sprintf("%s %+v %+v", name, s, tasks[name]))
				}
			}
		}
	})
}

// The reason of a repository in error is what has failed, and not what ended with it.
func TestTheReasonIsNoVictim(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec repository.Spec
		of   []repository.Of
		want string
	}{
		"the first by id": {of: []repository.Of{{ID: "b", State: "failed"}, {ID: "a", State: "failed"}}, want: "a"},
		"not a victim":    {of: []repository.Of{{ID: "a", State: "failed", Blocked: "y"}, {ID: "y", State: "pending"}, {ID: "z", State: "failed"}}, want: "z"},
		"behind two":      {spec: repository.Spec{Required: []string{"lint"}}, of: []repository.Of{{ID: "a", Type: "lint", State: "failed", Blocked: "b"}, {ID: "b", State: "failed", Blocked: "z"}, {ID: "z", State: "failed"}}, want: "z"},
		"victims only":    {of: []repository.Of{{ID: "a", State: "failed", Blocked: "z"}, {ID: "z", State: "pending"}}, want: "a"},
		"in a circle":     {of: []repository.Of{{ID: "a", State: "failed", Blocked: "b"}, {ID: "b", State: "failed", Blocked: "a"}}, want: "b"},
		"none":            {of: []repository.Of{{ID: "a", State: "succeeded"}}},
	} {
		ty := tally.New()
		ty.SetSpec("ns.a", c.spec)
		for _, of := range c.of {
			ty.Set("ns.a", of)
		}
		require.Equal(t, c.want, ty.Failed("ns.a"), name)
	}
}
