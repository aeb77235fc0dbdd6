package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/outbox"
)

// Outbox is the databases whose outbox is relayed. DSN is one for those who have no file.
type Outbox struct {
	DSN      string         `koanf:"dsn"`
	Postgres string         `koanf:"postgres"` // auto or off
	Sources  []OutboxSource `koanf:"sources"`
}

// The values of Outbox.Postgres.
const (
	PostgresAuto = "auto" // a private cluster below the data directory, where initdb and postgres are found
	PostgresOff  = "off"
)

// OutboxSource is one database. What is empty has the default of the relay; DSN or DSNFile is needed.
type OutboxSource struct {
	Name        string        `koanf:"name"`
	DSN         string        `koanf:"dsn"`
	DSNFile     string        `koanf:"dsnFile"` // read at each start of the relay, so that a password can be changed
	Schema      string        `koanf:"schema"`
	Mode        string        `koanf:"mode"`
	Stream      string        `koanf:"stream"`
	Prefix      string        `koanf:"prefix"`
	Shards      int           `koanf:"shards"`
	Batch       int           `koanf:"batch"`
	Poll        time.Duration `koanf:"poll"`
	Lease       time.Duration `koanf:"lease"`
	Attempts    int           `koanf:"attempts"`
	BaseBackoff time.Duration `koanf:"baseBackoff"`
	MaxBackoff  time.Duration `koanf:"maxBackoff"`
	Retention   time.Duration `koanf:"retention"`
	Inbox       time.Duration `koanf:"inboxRetention"`
	MaxLag      int64         `koanf:"maxLag"`
	Types       []string      `koanf:"types"`        // events that there are
	Unknown     string        `koanf:"unknownTypes"` // what happens to others: publish or park
	CloudEvents string        `koanf:"cloudEvents"`  // binary or structured
}

// The names of sources that no file names.
const (
	sourceMain = "main" // of --outbox-dsn
	SourceDev  = "dev"  // of the private cluster, and of --outbox-dsn in dev
)

// All are the sources of the file, and that of --outbox-dsn under its name.
func (o Outbox) All(mode string) []OutboxSource {
	list := slices.Clone(o.Sources)
	if o.DSN != "" {
		list = append(list, OutboxSource{Name: mainSource(mode), DSN: o.DSN})
	}
	return list
}

func mainSource(mode string) string {
	if mode == Dev {
		return SourceDev
	}
	return sourceMain
}

// Relayed is what the relay of the source gets. The file of the DSN is read now.
func (s OutboxSource) Relayed() (outbox.Config, error) {
	dsn := s.DSN
	if s.DSNFile != "" {
		raw, err := os.ReadFile(s.DSNFile)
		if err != nil {
			return outbox.Config{}, fmt.Errorf("cannot read the DSN of source %s: %w", s.Name, err)
		}
		dsn = strings.TrimSpace(string(raw))
	}
	return outbox.Config{
		Name: s.Name, DSN: dsn, Schema: s.Schema, Mode: outbox.Mode(cmp.Or(s.Mode, string(outbox.Log))), Stream: s.Stream, Prefix: s.Prefix,
		Shards: s.Shards, Batch: s.Batch, Poll: s.Poll, Lease: s.Lease, Attempts: s.Attempts, BaseBackoff: s.BaseBackoff, MaxBackoff: s.MaxBackoff,
		Retention: s.Retention, MaxLag: s.MaxLag, Types: s.types(), Structured: s.CloudEvents == structuredMode,
	}, nil
}

// types is what the relay knows of events: nil is all of them.
func (s OutboxSource) types() *outbox.Types {
	if len(s.Types) == 0 {
		return nil
	}
	return &outbox.Types{Names: s.Types, Unknown: outbox.Policy(cmp.Or(s.Unknown, string(outbox.ParkUnknown)))}
}

// structuredMode is a value of cloudEvents; the other one is binary.
const structuredMode = "structured"

var (
	eventTypes   = regexp.MustCompile(`^([A-Za-z0-9_-]+[.])*([A-Za-z0-9_-]+|>)$`)
	sqlName      = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)
	streamName   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	outboxModes  = []string{"", string(outbox.Claim), string(outbox.Log)}
	longestSteps = 24 * time.Hour
)

func (o Outbox) validate() error {
	var errs []error
	if !slices.Contains([]string{PostgresAuto, PostgresOff}, o.Postgres) {
		errs = append(errs, fmt.Errorf("outbox.postgres: %q is none of auto, off", o.Postgres))
	}
	seen := map[string]bool{}
	for i, s := range o.Sources {
		at := fmt.Sprintf("outbox.sources[%d]", i)
		if seen[s.Name] {
			errs = append(errs, fmt.Errorf("%s.name: %q is there twice", at, s.Name))
		}
		seen[s.Name] = true
		if err := s.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s.%w", at, err))
		}
	}
	if o.DSN != "" && (seen[sourceMain] || seen[SourceDev]) {
		errs = append(errs, fmt.Errorf("outbox.dsn: is the source %s (%s in dev), which outbox.sources has, too", sourceMain, SourceDev))
	}
	return errors.Join(errs...)
}

// Validate tells the first thing that is wrong, after the name of its key.
func (s OutboxSource) Validate() error {
	switch {
	case !machines.IsLabel(s.Name):
		return fmt.Errorf("name: %q is not a DNS label", s.Name)
	case (s.DSN == "") == (s.DSNFile == ""):
		return errors.New("dsn: needs either dsn or dsnFile")
	case !slices.Contains(outboxModes, s.Mode):
		return fmt.Errorf("mode: %q is neither claim nor log", s.Mode)
	case s.Schema != "" && !sqlName.MatchString(s.Schema):
		return fmt.Errorf("schema: %q is not a plain lower-case name of at most 63 characters", s.Schema)
	case !slices.Contains([]string{"", "binary", structuredMode}, s.CloudEvents):
		return fmt.Errorf("cloudEvents: %q is none of binary, structured", s.CloudEvents)
	case !slices.Contains([]string{"", string(outbox.PublishUnknown), string(outbox.ParkUnknown)}, s.Unknown):
		return fmt.Errorf("unknownTypes: %q is none of publish, park", s.Unknown)
	case s.Unknown != "" && len(s.Types) == 0:
		return errors.New("unknownTypes: needs types")
	case slices.ContainsFunc(s.Types, func(t string) bool { return !eventTypes.MatchString(t) }):
		return fmt.Errorf("types: %q: an event type is dotted, such as order.paid, or all below one: order.>", s.Types)
	case s.Stream != "" && !streamName.MatchString(s.Stream):
		return fmt.Errorf("stream: %q is not a name of a stream", s.Stream)
	case s.Prefix != "" && !machines.IsLabel(s.Prefix):
		return fmt.Errorf("prefix: %q is not one lower-case token", s.Prefix)
	case s.Shards < 0 || s.Shards > 64:
		return fmt.Errorf("shards: %d is not between 1 and 64", s.Shards)
	case s.Batch < 0 || s.Batch > 1000:
		return fmt.Errorf("batch: %d is not between 1 and 1000", s.Batch)
	case s.Attempts < 0 || s.Attempts > 1000:
		return fmt.Errorf("attempts: %d is not between 1 and 1000", s.Attempts)
	case s.MaxLag < 0:
		return fmt.Errorf("maxLag: %d is negative", s.MaxLag)
	}
	for key, d := range map[string]time.Duration{"poll": s.Poll, "lease": s.Lease, "baseBackoff": s.BaseBackoff, "maxBackoff": s.MaxBackoff} {
		if d < 0 || d > longestSteps {
			return fmt.Errorf("%s: %s is not between 0s and %s", key, d, longestSteps)
		}
	}
	for key, d := range map[string]time.Duration{"retention": s.Retention, "inboxRetention": s.Inbox} {
		if d != 0 && d < time.Minute {
			return fmt.Errorf("%s: %s is less than 1m", key, d)
		}
	}
	return readable("dsnFile", s.DSNFile)
}

// redacted has *** in place of what may hold a password.
func (o Outbox) redacted() Outbox {
	o.DSN = RedactDSN(o.DSN)
	o.Sources = slices.Clone(o.Sources)
	for i := range o.Sources {
		o.Sources[i].DSN = RedactDSN(o.Sources[i].DSN)
	}
	return o
}

// RedactDSN keeps host and database of a URL; any other form is hidden whole.
func RedactDSN(dsn string) string {
	if dsn == "" {
		return ""
	}
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return hidden
	}
	u.User, u.RawQuery = url.User(hidden), ""
	return strings.Replace(u.String(), url.PathEscape(hidden), hidden, 1)
}
