package registry_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/registry"
)

type lamp struct{}

// definition is a lamp that is heated.
func definition() machines.Definition[lamp] {
	return machines.Definition[lamp]{
		Name: "lamp", Plural: "lamps", Doc: "It shines.", States: []machines.State[lamp]{{Name: "warming"}, {Name: "lit", Terminal: true}},
		Inputs:  []machines.Command{{Name: "light", Doc: "Light it.", Birth: true}, {Name: "heated", Doc: "It is lit.", Report: true}, {Name: "heat-failed", Doc: "It is not.", Report: true}},
		Effects: []machines.Effect[lamp]{{Name: "heat", Doc: "Heat it.", Done: "heated", Failed: "heat-failed"}},
		Events:  []machines.EventType{{Name: "lamp.lit", Class: machines.ClassState, Doc: "It is lit."}},
		Edges: []machines.Edge[lamp]{
			{From: []string{machines.None}, On: "light", To: "warming", Effects: []string{"heat"}},
			{From: []string{"warming"}, On: "heated", To: "lit", Emit: []string{"lamp.lit"}},
			{From: []string{"warming"}, On: "heat-failed", To: machines.Same},
		},
	}
}

// called is a lamp under other names.
func called(name, plural string, change ...func(*machines.Definition[lamp])) *machines.Machine {
	d := definition()
	d.Name, d.Plural = name, plural
	for _, c := range change {
		c(&d)
	}
	return machines.Define(d)
}

func ExampleRegistry() {
	lamps := machines.Define(definition())
	r, err := registry.New(lamps)
	fmt.Println(r.Get("lamp") == lamps, r.Get("door") == nil, err)
	// Output: true true <nil>
}

func ExampleRegistry_OnAdd() {
	r, _ := registry.New(called("lamp", "lamps"))
	stop := r.OnAdd(func(m *machines.Machine) { fmt.Println("there is", m.Name) })
	fmt.Println(r.Add(called("torch", "torches")))
	stop()
	fmt.Println(r.Add(called("candle", "candles")))
	// Output:
	// there is lamp
	// there is torch
	// <nil>
	// <nil>
}

func ExampleRegistry_Add() {
	r, _ := registry.New(called("lamp", "lamps"))
	fmt.Println(r.Add(called("light", "lamps")))
	fmt.Println(len(r.All()))
	// Output:
	// registry: lamp and light both have the bucket lamps
	// 1
}

func TestRegistryRefusesWhatWouldMeet(t *testing.T) {
	t.Parallel()
	view := func(names ...string) func(*machines.Definition[lamp]) {
		return func(d *machines.Definition[lamp]) {
			d.Views = nil
			for _, name := range names {
				d.Views = append(d.Views, machines.View{Name: name, Doc: "a view", Events: []string{d.Events[0].Name}, Project: func(json.RawMessage, string, machines.Event, json.RawMessage) (any, error) { return nil, nil }})
			}
		}
	}
	for _, c := range []struct {
		what  string
		first *machines.Machine
		then  *machines.Machine
	}{
		{"the same machine", called("lamp", "lamps"), called("lamp", "lamps")},
		{"the name", called("lamp", "lamps"), called("lamp", "lights")},
		{"the plural", called("lamp", "lamps"), called("light", "lamps")},
		{"the plural as a name", called("lamp", "lamps"), called("lamps", "lights")},
		{"the name as a plural", called("lamp", "lamps"), called("light", "lamp")},
		{"the bucket of a view as a plural", called("lamp", "lamps", view("dim")), called("light", "lamps_dim", view())},
		{"the plural as the bucket of a view", called("light", "lamps_dim", view()), called("lamp", "lamps", view("dim"))},
		{"the buckets of views", called("lamp", "lamps", view("dim_red")), called("light", "lamps_dim", view("red"))},
		{"the consumers of views", called("lamp", "lamps", view("dim-red")), called("lamp-dim", "lights", view("red"))},
		{"the consumers of effects", called("lamp-heat", "lights", view(), renamed("heat", "up")), called("lamp", "lamps", view(), renamed("heat", "heat-up"))},
	} {
		r, err := registry.New(c.first)
		require.NoError(t, err, c.what)
		require.Error(t, r.Check(c.then), c.what)
		require.Error(t, r.Add(c.then), c.what)
		require.Equal(t, []*machines.Machine{c.first}, r.All(), c.what)
		_, err = registry.New(c.first, c.then)
		require.Error(t, err, c.what)
	}
}

// renamed gives an effect another name.
func renamed(from, to string) func(*machines.Definition[lamp]) {
	return func(d *machines.Definition[lamp]) {
		for i := range d.Effects {
			if d.Effects[i].Name == from {
				d.Effects[i].Name = to
			}
		}
		for i, e := range d.Edges {
			for k, fx := range e.Effects {
				if fx == from {
					d.Edges[i].Effects = append(append([]string{}, e.Effects[:k]...), append([]string{to}, e.Effects[k+1:]...)...)
				}
			}
		}
	}
}

func TestRegistryIsEmptyAtFirst(t *testing.T) {
	t.Parallel()
	var r registry.Registry
	require.Empty(t, r.All())
	require.Nil(t, r.Get("lamp"))
	require.NoError(t, r.Add(called("lamp", "lamps")))
	require.NotNil(t, r.Get("lamp"))
}

// Whoever listens is told of each machine once and in order, and finds it; whoever has looked at all of them sees no change.
func TestRegistryWhileOthersLook(t *testing.T) {
	t.Parallel()
	const many = 20
	var r registry.Registry
	var all []*machines.Machine
	for i := range many {
		all = append(all, called(fmt.Sprintf("lamp%d", i), fmt.Sprintf("lamps%d", i)))
	}
	var running sync.WaitGroup
	var told [4][]*machines.Machine
	done := make(chan struct{})
	for i := range told {
		running.Go(func() {
			stop := r.OnAdd(func(m *machines.Machine) {
				if r.Get(m.Name) == m {
					told[i] = append(told[i], m)
				}
			})
			defer stop()
			for last := 0; ; {
				select {
				case <-done:
					return
				default:
				}
				now := r.All()
				if len(now) < last || len(now) > 0 && r.Get(now[len(now)-1].Name) != now[len(now)-1] {
					panic("a machine is gone")
				}
				last = len(now)
			}
		})
	}
	for _, m := range all {
		require.NoError(t, r.Add(m))
	}
	require.Equal(t, all, r.All())
	late := []*machines.Machine{}
	r.OnAdd(func(m *machines.Machine) { late = append(late, m) })()
	require.Equal(t, all, late)
	close(done)
	running.Wait()
	for i := range told {
		if len(told[i]) > 0 { // it came before the end
			require.Equal(t, all, told[i])
		}
	}
}

func TestRegistryLookUpAllocatesNothing(t *testing.T) {
	r, err := registry.New(called("lamp", "lamps"))
	require.NoError(t, err)
	name := []byte("lamp")
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if r.Get(string(name)) == nil || len(r.All()) != 1 {
			panic("it is not there")
		}
	}))
}
