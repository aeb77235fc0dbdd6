package index

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/kv/internal/feed"
)

// memory is a served index without a server, fed by hand.
func memory() *Index {
	ix := New(nil, "b", describe, Options{})
	ix.serve(newTable())
	return ix
}

func (ix *Index) feed(ops ...op) {
	rev := ix.table.at.Revision
	for _, o := range ops {
		rev = max(rev, o.Revision)
	}
	ix.take(ix.table, ops, &feed.Feed{Position: feed.Position{Revision: rev}})
}

// naive is the model: all items, looked at one by one.
type naive map[string]Item

func (m naive) apply(o op) {
	if o.Deleted {
		delete(m, o.Key)
		return
	}
	i := Item{
		Key: o.Key, State: o.meta.State, Since: o.meta.Since, CreatedAt: o.meta.CreatedAt, UpdatedAt: o.meta.UpdatedAt,
		Version: o.meta.Version, Generation: o.meta.Generation, Revision: o.Revision, Problem: o.problem,
	}
	if len(o.meta.Labels) > 0 {
		i.Labels = o.meta.Labels
	}
	if i.UpdatedAt.IsZero() {
		i.UpdatedAt = time.Unix(0, o.At).UTC()
	}
	m[o.Key] = i
}

func (m naive) list(q Query) (items []Item, next string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if i := m[key]; key > q.After && m.match(q, i) {
			if len(items) == q.Limit {
				return items, items[len(items)-1].Key
			}
			items = append(items, i)
		}
	}
	return items, ""
}

func (m naive) match(q Query, i Item) bool {
	tokens := strings.Split(i.Key, ".")
	if q.Namespace != "" && tokens[0] != q.Namespace || q.Parent != "" && (len(tokens) != 3 || tokens[1] != q.Parent) {
		return false
	}
	if _, among := q.Keys[i.Key]; q.Keys != nil && !among || !strings.HasPrefix(tokens[len(tokens)-1], q.IDPrefix) {
		return false
	}
	if len(q.States) > 0 && !slices.Contains(q.States, i.State) || q.Problems && i.Problem == "" {
		return false
	}
	for _, s := range q.Labels {
		v, ok := i.Labels[s.Label]
		if !ok && s.Absent != "" && i.Problem == "" {
			v, ok = s.Absent, true
		}
		in := ok && slices.Contains(s.Values, v)
		if s.Op == Exists && !ok || s.Op == NotEqual && in || (s.Op == Equal || s.Op == In) && !in {
			return false
		}
	}
	inside := func(at, after, before time.Time) bool {
		return (after.IsZero() || at.After(after)) && (before.IsZero() || at.Before(before))
	}
	return inside(i.UpdatedAt, q.UpdatedAfter, q.UpdatedBefore) && inside(i.CreatedAt, q.CreatedAfter, q.CreatedBefore)
}

var (
	keyGen    = rapid.Custom(func(t *rapid.T) string { return rapid.SampledFrom(someKeys).Draw(t, "key") })
	stateGen  = rapid.SampledFrom([]string{"starting", "active.healthy", "stopped", "failed", ""})
	valueGen  = rapid.SampledFrom([]string{"a", "b", "c", ""})
	labelGen  = rapid.SampledFrom([]string{"team", "env", "tier"})
	timeGen   = rapid.Custom(func(t *rapid.T) time.Time { return time.Unix(rapid.Int64Range(1, 20).Draw(t, "s"), 0).UTC() })
	labelsGen = rapid.MapOfN(labelGen, valueGen, 0, 3)
	someKeys  = func() (keys []string) {
		for i := range 60 {
			keys = append(keys, fmt.Sprintf("ns.e%d", i), fmt.Sprintf("ns-%d.web.i%d", i%2, i), fmt.Sprintf("ns.web%d.i%d", i%2, i))
		}
		return keys
	}()
)

// Generators make their names when they are first asked for them, which tests that run side by side would do at once.
var _ = fmt.Sprint(keyGen, stateGen, valueGen, labelGen, timeGen, labelsGen)

func drawOp(t *rapid.T, rev uint64) op {
	o := op{Update: feed.Update{Key: keyGen.Draw(t, "key"), Revision: rev, At: int64(rev)}}
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0, 1:
		o.Deleted = true
	case 2:
		o.problem = "unreadable"
	default:
		o.meta = Meta{State: stateGen.Draw(t, "state"), Version: rev % 7, Generation: rev % 3, Labels: labelsGen.Draw(t, "labels"), CreatedAt: timeGen.Draw(t, "created")}
		if rapid.Bool().Draw(t, "timed") {
			o.meta.Since, o.meta.UpdatedAt = timeGen.Draw(t, "since"), timeGen.Draw(t, "updated")
		}
	}
	return o
}

func drawQuery(t *rapid.T) Query {
	q := Query{Limit: rapid.IntRange(1, 40).Draw(t, "limit"), Problems: rapid.IntRange(0, 9).Draw(t, "problems") == 0}
	maybe := func(name string) bool { return rapid.IntRange(0, 2).Draw(t, "with "+name) == 0 }
	if maybe("namespace") {
		q.Namespace = rapid.SampledFrom([]string{"ns", "ns-1", "other"}).Draw(t, "namespace")
	}
	if maybe("parent") {
		q.Parent = rapid.SampledFrom([]string{"web", "web0", "e1"}).Draw(t, "parent")
	}
	if maybe("states") {
		q.States = rapid.SliceOfN(stateGen, 1, 3).Draw(t, "states")
	}
	for range rapid.IntRange(0, 2).Draw(t, "selectors") {
		s := Selector{Label: labelGen.Draw(t, "label"), Op: rapid.SampledFrom([]Op{Equal, NotEqual, In, Exists}).Draw(t, "op"), Absent: rapid.SampledFrom([]string{"", "", "a"}).Draw(t, "absent")}
		if s.Op != Exists {
			s.Values = rapid.SliceOfN(valueGen, 1, map[Op]int{In: 3}[s.Op]+1).Draw(t, "values")[:1]
		}
		if s.Op == In {
			s.Values = append(s.Values, valueGen.Draw(t, "value"))
		}
		q.Labels = append(q.Labels, s)
	}
	for _, at := range []*time.Time{&q.UpdatedAfter, &q.UpdatedBefore, &q.CreatedAfter, &q.CreatedBefore} {
		if rapid.IntRange(0, 5).Draw(t, "bound") == 0 {
			*at = timeGen.Draw(t, "time")
		}
	}
	if maybe("keys") {
		q.Keys = map[string]struct{}{}
		for _, key := range rapid.SliceOfN(keyGen, 0, 5).Draw(t, "keys") {
			q.Keys[key] = struct{}{}
		}
	}
	if maybe("after") {
		q.After = keyGen.Draw(t, "after")
	}
	return q
}

// ordered is the model of another order: all that match, sorted.
func (m naive) ordered(q Query) []Item {
	all := q
	all.Limit, all.After = len(m)+1, ""
	items, _ := m.list(all)
	slices.SortFunc(items, func(a, b Item) int {
		c := map[By][2]time.Time{ByCreated: {a.CreatedAt, b.CreatedAt}, ByUpdated: {a.UpdatedAt, b.UpdatedAt}, BySince: {a.Since, b.Since}}[q.Order.By]
		first, second := c[0], c[1]
		if q.Order.Descending {
			first, second = second, first
		}
		return cmp.Or(first.Compare(second), strings.Compare(a.Key, b.Key))
	})
	return items
}

// The pages of another order are together what matches, sorted.
func TestOrderedPagesEqualSorting(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ix, model := memory(), naive{}
		for rev := range rapid.Uint64Range(1, 200).Draw(t, "ops") {
			o := drawOp(t, rev+1)
			model.apply(o)
			ix.feed(o)
		}
		for range 5 {
			q := drawQuery(t)
			q.After = ""
			q.Order = Order{rapid.SampledFrom([]By{ByCreated, ByUpdated, BySince}).Draw(t, "by"), rapid.Bool().Draw(t, "descending")}
			want := model.ordered(q)
			var got []Item
			for {
				p := ix.List(q)
				require.LessOrEqual(t, len(p.Items), q.Limit)
				got = append(got, p.Items...)
				if p.Next == "" {
					break
				}
				require.Len(t, p.Items, q.Limit)
				q.After, q.AfterTime = p.Next, p.NextTime
			}
			require.Equal(t, want, got, "%+v", q)
		}
	})
}

// Any history leaves an index that answers every query as looking at all items one by one does.
func TestQueriesEqualBruteForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ix, model, rev := memory(), naive{}, uint64(0)
		half := newTable() // filled first, sealed later
		for range rapid.IntRange(1, 200).Draw(t, "ops") {
			rev++
			o := drawOp(t, rev)
			model.apply(o)
			half.apply(&o)
			ix.feed(o)
		}
		built := New(nil, "b", describe, Options{})
		built.serve(half)
		for range 12 {
			q := drawQuery(t)
			items, next := model.list(q)
			want := Page{Items: items, Next: next, Revision: rev}
			require.Equal(t, want, ix.List(q), "%+v", q)
			want.Revision = 0
			require.Equal(t, want, built.List(q), "%+v", q)
		}
		for _, ns := range []string{"", "ns", "ns-0", "other"} {
			counts := map[string]int{}
			for _, i := range model {
				if ns == "" || strings.HasPrefix(i.Key, ns+".") {
					counts[i.State]++
				}
			}
			require.Equal(t, counts, ix.Counts(ns))
			require.Equal(t, counts, built.Counts(ns))
			if of, there := ix.CountsByNamespace()[ns]; there || ns != "" && len(counts) > 0 {
				require.Equal(t, counts, of)
			}
		}
		require.Equal(t, len(model), ix.Len())
		for _, key := range someKeys {
			got, ok := ix.Get(key)
			want, is := model[key]
			require.Equal(t, is, ok)
			require.Equal(t, want, got)
		}
		empty(t, ix, model)
	})
}

// empty deletes all and sees that the index keeps nothing of it.
func empty(t *rapid.T, ix *Index, model naive) {
	for key := range model {
		ix.feed(op{Update: feed.Update{Key: key, Revision: 1000, Deleted: true}})
	}
	x := ix.table
	require.Zero(t, len(x.rows)+x.all.len()+len(x.spaces)+len(x.labels)+len(x.combos)+len(x.problems))
	for _, s := range x.states {
		require.Zero(t, s.rows.len())
	}
}

func TestPagesCoverMoreThanOnePiece(t *testing.T) {
	t.Parallel()
	ix, _ := million(3*piece + 10)
	var keys []string
	for q := (Query{Limit: 700}); ; {
		p := ix.List(q)
		for _, i := range p.Items {
			keys = append(keys, i.Key)
		}
		if q.After = p.Next; p.Next == "" {
			break
		}
	}
	require.Len(t, keys, 3*piece+10)
	require.True(t, slices.IsSorted(keys))
	require.Len(t, ix.List(Query{}).Items, 100)
	last := keys[len(keys)-1]
	far := ix.List(Query{After: keys[len(keys)-2], UpdatedAfter: time.Unix(1, 0)})
	require.Equal(t, last, far.Items[0].Key)
	one, _ := ix.Get(last)
	require.Equal(t, []Item{one}, ix.List(Query{UpdatedAfter: one.UpdatedAt.Add(-1), UpdatedBefore: one.UpdatedAt.Add(1)}).Items)
}

// The beginning of an id is looked for by seeking, also over many namespaces and parents.
func TestIDsThatBeginSo(t *testing.T) {
	t.Parallel()
	for form, parts := range map[string][]int{"ns-%d.%s%d": {5, 1}, "ns-%d.p-%d.%s%d": {3, 40}, "ns-%d.p%d.%s%d": {2, 300}} {
		ix, model := memory(), naive{}
		for i := range 3000 {
			args := []any{i % parts[0], strings.Repeat("ab-", i%4) + "x", i}
			if parts[1] > 1 {
				args = slices.Insert(args, 1, any(i%parts[1]))
			}
			o := op{Update: feed.Update{Key: fmt.Sprintf(form, args...), Revision: uint64(i + 1), At: 1}, meta: Meta{State: []string{"open", "shut"}[i%2]}}
			model.apply(o)
			ix.feed(o)
		}
		for _, prefix := range []string{"a", "ab-x1", "ab-ab-", "b", "x", "x2999", "y", "-"} {
			for _, q := range []Query{{}, {Namespace: "ns-1"}, {Namespace: "none"}, {States: []string{"open", "shut"}}, {Namespace: "ns-0", States: []string{"shut"}, After: "ns-0.p-1"}} {
				q.IDPrefix, q.Limit = prefix, 50
				items, next := model.list(q)
				require.Equal(t, Page{Items: items, Next: next, Revision: 3000}, ix.List(q), "%s %+v", form, q)
			}
		}
	}
}

func TestParseSelectors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]Selector{
		"":                         nil,
		"team=web":                 {{Label: "team", Op: Equal, Values: []string{"web"}}},
		"team=":                    {{Label: "team", Op: Equal, Values: []string{""}}},
		" team = web , env != dev": {{Label: "team", Op: Equal, Values: []string{"web"}}, {Label: "env", Op: NotEqual, Values: []string{"dev"}}},
		"tier in (a, b),canary":    {{Label: "tier", Op: In, Values: []string{"a", "b"}}, {Label: "canary", Op: Exists}},
		"x,tier in (a)":            {{Label: "x", Op: Exists}, {Label: "tier", Op: In, Values: []string{"a"}}},
		"tier in (a,b)":            {{Label: "tier", Op: In, Values: []string{"a", "b"}}},
	} {
		got, err := ParseSelectors(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"=a", "a b", "tier in (a", "tier in (a,b", "tier in (a) b", ",", "a,,b", "!a"} {
		_, err := ParseSelectors(text)
		require.Error(t, err, text)
	}
	_, err := ParseSelectors("tier in a")
	require.EqualError(t, err, `kv: selector "tier in a": values must be in brackets`)
	_, err = ParseSelectors("=a")
	require.EqualError(t, err, `kv: selector "=a": not a label`)
	require.Equal(t, "tier in (a,b)", Selector{Label: "tier", Op: In, Values: []string{"a", "b"}}.String())
	require.Equal(t, "team!=web", Selector{Label: "team", Op: NotEqual, Values: []string{"web"}}.String())
}

func ExampleParseSelectors() {
	selectors, err := ParseSelectors("team=web,env!=dev,tier in (a,b),canary")
	fmt.Println(selectors, err)
	// Output: [team=web env!=dev tier in (a,b) canary] <nil>
}
