package config

import (
	"errors"
	"fmt"
	"time"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/limits"
	"github.com/bcc94042/instar/api/rest"
)

// Limits bound what one client, and all of them together, may hold and ask; 0 is no bound. A client is a token; without
// tokens, and of connections, it is an address.
type Limits struct {
	Connections          int `koanf:"connections"`
	ConnectionsPerClient int `koanf:"connectionsPerClient"`
	Watches              int `koanf:"watches"`
	WatchesPerClient     int `koanf:"watchesPerClient"`
	Waits                int `koanf:"waits"`
	WaitsPerClient       int `koanf:"waitsPerClient"`
	Commands             int `koanf:"commands"`
	CommandsPerClient    int `koanf:"commandsPerClient"`
	CommandsAtOnce       int `koanf:"commandsAtOnce"`
	Questions            int `koanf:"questions"`
	QuestionsPerClient   int `koanf:"questionsPerClient"`
	Rate                 int `koanf:"rate"`
	Burst                int `koanf:"burst"`
	EntitiesPerNamespace int `koanf:"entitiesPerNamespace"`
}

func defaultLimits() Limits {
	d := api.DefaultLimits
	return Limits{
		d.Connections.All, d.Connections.Each, d.Watches.All, d.Watches.Each, d.Waits.All, d.Waits.Each, d.Commands.All, d.Commands.Each, d.CommandsAtOnce,
		d.Questions.All, d.Questions.Each, d.Rate, d.Burst, d.Entities,
	}
}

func (l Limits) validate() error {
	var errs []error
	for key, n := range map[string]int{
		"connections": l.Connections, "connectionsPerClient": l.ConnectionsPerClient, "watches": l.Watches, "watchesPerClient": l.WatchesPerClient, "waits": l.Waits,
		"waitsPerClient": l.WaitsPerClient, "commands": l.Commands, "commandsPerClient": l.CommandsPerClient, "commandsAtOnce": l.CommandsAtOnce,
		"entitiesPerNamespace": l.EntitiesPerNamespace, "questions": l.Questions, "questionsPerClient": l.QuestionsPerClient, "rate": l.Rate, "burst": l.Burst,
	} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("limits.%s: %d is negative; 0 is no limit", key, n))
		}
	}
	if l.Burst > 0 && l.Rate == 0 {
		errs = append(errs, errors.New("limits.burst is for limits.rate, which is not set"))
	}
	return errors.Join(errs...)
}

// API are the limits of a process that may have so many open files. A quarter of these is for everything else.
func (l Limits) API(files uint64) api.Limits {
	conns := limits.Bound{All: l.Connections, Each: l.ConnectionsPerClient}
	if most := int(min(files, 1<<30) / 4 * 3); most > 0 && (conns.All == 0 || conns.All > most) { // it is bounded
		conns.All = most
	}
	return api.Limits{
		Connections: conns, Watches: limits.Bound{All: l.Watches, Each: l.WatchesPerClient}, Waits: limits.Bound{All: l.Waits, Each: l.WaitsPerClient},
		Commands: limits.Bound{All: l.Commands, Each: l.CommandsPerClient}, CommandsAtOnce: l.CommandsAtOnce,
		Questions: limits.Bound{All: l.Questions, Each: l.QuestionsPerClient}, Rate: l.Rate, Burst: l.Burst, Entities: l.EntitiesPerNamespace,
	}
}

func defaultTimeouts(h HTTP) HTTP {
	d := rest.DefaultTimeouts
	h.HeaderTimeout, h.BodyTimeout, h.WriteTimeout, h.IdleTimeout = d.Header, d.Body, d.Write, d.Idle
	return h
}

// APITimeouts are the timeouts of the listener.
func (h HTTP) APITimeouts() rest.Timeouts {
	return rest.Timeouts{Header: h.HeaderTimeout, Body: h.BodyTimeout, Write: h.WriteTimeout, Idle: h.IdleTimeout}
}

func (h HTTP) validateTimeouts() error {
	var errs []error
	for key, d := range map[string]time.Duration{"headerTimeout": h.HeaderTimeout, "bodyTimeout": h.BodyTimeout, "writeTimeout": h.WriteTimeout, "idleTimeout": h.IdleTimeout} {
		if d < 100*time.Millisecond {
			errs = append(errs, fmt.Errorf("http.%s: %s is less than 100ms", key, d))
		}
	}
	return errors.Join(errs...)
}
