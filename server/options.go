package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/consumers/observer"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/server/build"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
)

// Options are what a server runs besides its configuration: which lifecycles there are, and what serves them. Those that ship are put together in server/builtin, and an application adds its own.
type Options struct {
	// Machines are the lifecycles, in the order in which they are shown.
	Machines []*machines.Machine

	// Providers serve the machines that need more than their table, by the name of the machine. A machine with effects needs one.
	Providers map[string]Provider

	// Absent are words of paths that are there only with a section of the configuration which it lacks, and that section: who asks for a path that has all words of a key is told so. Nil is none.
	Absent func(config.Config) map[string]string

	// Open, when set, is called once on every node, after the providers were opened and before anything acts: with the server as they see it. It may add machines ([Host.AddMachine]), and what keeps the host may do so later. An error ends the server.
	Open func(context.Context, *Host) error

	// Programs are run instead of the command line when the first argument is their name: what providers start this binary again for, or bring for users.
	Programs map[string]Program

	// Build is what this binary is; what is empty is filled in from what the Go toolchain has written into it.
	Build build.Info

	// Out is where a dev server says where things are. Nil says it nowhere.
	Out io.Writer
}

// Provider is what serves one machine on every node.
type Provider struct {
	// Open starts what performs the machine's effects, before the first command is taken. An error ends the server, or the addition of the machine ([Host.AddMachine]). Its context ends when these are given up
	// while it runs; what it starts with it lives on after that. Nil performs nothing: the machine has no effects.
	Open func(context.Context, *Host) (Work, error)

	// Decoder makes a function that decodes the values of the machine for its index, where [index.Meta.Value] holds them. Nil keeps
	// none decoded. A decoder is used by one goroutine.
	Decoder func() func(key string, value []byte) (any, error)

	// When says in which configurations there is the machine at all; nil is all. Where it is not, the server has no bucket, no route and no document of it.
	When func(config.Config) bool

	// Live has the values told on core NATS as they are stored, so that following an entity there costs the server nothing.
	Live bool

	// Known are values that the command line offers for flags of the machine's commands, besides those that entities have.
	Known map[string][]string
}

// Work is what a provider does on the node that has the role of the gateway.
type Work struct {
	Performer effects.Performer // of the effects; effects.External leaves all to workers elsewhere: their consumers are made and kept, and nothing is taken from them
	Looker    observer.Looker   // at the world, for states with a poll; nil looks never
	Every     time.Duration     // between looks; 0 is what the table says
	Routes    effects.Routes    // those of its tasks that have queues of their own, by their data: their consumers are made and kept, and nothing is taken from them
	EachNode  map[string]int    // has all nodes perform the effects, at most so many tasks of one that it names at a time; nil leaves that to the node that has the role
}

// Performs is a provider that needs nothing of the server. When p is also a [observer.Looker], it looks at the world, too.
func Performs(p effects.Performer) Provider {
	looker, _ := p.(observer.Looker)
	return Provider{Open: func(context.Context, *Host) (Work, error) { return Work{Performer: p, Looker: looker}, nil }}
}

// Program is one that this binary is as well. Run gets the arguments after its name, and returns the exit code.
type Program struct {
	Doc string // in the help, as "NAME ARGUMENTS: what it does"; one without is not shown
	Run func(args []string) int
}

// For is what there is of it in a configuration, see [Provider.When].
func (o Options) For(cfg config.Config) Options {
	o.Machines = slices.DeleteFunc(slices.Clone(o.Machines), func(m *machines.Machine) bool { when := o.Providers[m.Name].When; return when != nil && !when(cfg) })
	return o
}

// Machine finds one by its name or its plural.
func (o Options) Machine(name string) (*machines.Machine, error) {
	var names []string
	for _, m := range o.Machines {
		if m.Name == name || m.Plural == name {
			return m, nil
		}
		names = append(names, m.Name)
	}
	return nil, fmt.Errorf("there is no machine %q; there are %s", name, strings.Join(names, ", "))
}

// Validate tells what does not fit together: machines of one name, providers of machines that are not there, machines whose
// effects nobody performs, and a configuration that names machines that are not there.
func (o Options) Validate(cfg config.Config) error {
	var errs []error
	if len(o.Machines) == 0 {
		errs = append(errs, errors.New("there are no machines"))
	}
	ms, err := registry.New(o.Machines...)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, m := range o.Machines {
		errs = append(errs, usable(m, o.Providers[m.Name]))
	}
	for name, p := range o.Providers {
		if ms.Get(name) == nil && (p.When == nil || p.When(cfg)) {
			errs = append(errs, fmt.Errorf("there is a provider of %s, and no such machine", name))
		}
	}
	for _, name := range cfg.HTTP.RequiringIfMatch() {
		if _, err := o.Machine(name); err != nil {
			errs = append(errs, fmt.Errorf("http.requireIfMatch: %w", err))
		}
	}
	return errors.Join(errs...)
}

// usable says why a machine cannot be served: its bucket is one of the server, or nobody performs its effects.
func usable(m *machines.Machine, p Provider) error {
	if slices.Contains([]string{streams.OwnersBucket, streams.IdempotencyBucket, streams.OperationsBucket}, m.Plural) {
		return fmt.Errorf("machine %s: the bucket %s is one of the server: use another Plural", m.Name, m.Plural)
	}
	if len(m.Effects) > 0 && p.Open == nil {
		return fmt.Errorf("machine %s has effects and no provider", m.Name)
	}
	return nil
}
