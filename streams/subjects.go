package streams

// Names of subjects, streams and buckets. Whoever publishes or subscribes gets a subject from Names; whoever consumes passes it to one of the Parse functions, which check it and
// return the parts. SplitKey, CheckLabel and CheckToken are also called where names come in (API, commands, micro service). Partition computes which partition an entity belongs
// to.

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Partitions is the number of partitions of the commands. It cannot change: an entity's partition is part of the
// subject that its commands are stored under.
const Partitions = 32

// DefaultPrefix is the first token of every subject unless it is configured.
const DefaultPrefix = "instar"

// Names builds and parses subjects. The zero value has the default prefix.
//
//	instar.cmd.<machine>.<key>.<command>      a command as sent
//	instar.in.<p>.<machine>.<key>.<command>   the same as stored
//	instar.evt.<machine>.<key>.<event>        an event
//	instar.fx.<machine>.<effect>.<key>        an effect; <effect>=<route> is that of one with a queue of its own
//	instar.timer.<machine>.<key>.<name>       a message schedule
//	instar.dead.<consumer>.<machine>.<key>    a dead letter
//	instar.api.<verb>.<machine>...            requests to the micro service
//	instar.hb.<namespace>.<service>.<id>      a heartbeat of an instance, never stored
//	instar.obs.<namespace>.<service>.<id>     what a node saw of an instance, for its owner, never stored
//	instar.ack.<namespace>.<service>          what a watcher of a service has seen, never stored
//	instar.moved.<tenant>                     a tenant's data is elsewhere, never stored; instar.seen.<tenant>.<resolver> is which epoch of it an application has seen
//	instar.log.<machine>.<key>                a line that a worker logged for an entity
//	instar.provider.<kind>.<verb>             a request to a provider elsewhere, never stored; instar.worker.<queue> is where a worker says that it is there
//	instar.copy.<stream>                      the messages of a stream, for its copy in the readers' account
//	instar.live.<bucket>.<key>                a value as it is stored in a bucket of the plan's Live, not stored under this subject
//
// A key is <namespace>.<id>, or <namespace>.<parent>.<id>.
type Names struct{ Prefix string }

func (n Names) join(tokens ...string) string {
	prefix := n.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	return prefix + "." + strings.Join(tokens, ".")
}

// All matches every subject of the installation.
func (n Names) All() string { return n.join(">") }

// Command is the subject that a command is sent to.
func (n Names) Command(machine, key, command string) string {
	return n.join("cmd", machine, key, command)
}

// Stored is the subject that the command is stored under.
func (n Names) Stored(machine, key, command string) string {
	return n.join("in", strconv.Itoa(Partition(machine, key)), machine, key, command)
}

// StoredIn and StoredOf match the commands of one partition, and those to one entity.
func (n Names) StoredIn(partition int) string       { return n.join("in", strconv.Itoa(partition), ">") }
func (n Names) StoredOf(machine, key string) string { return n.join("in", "*", machine, key, ">") }

// Event is the subject of an event; EventsOf matches all events of one entity.
func (n Names) Event(machine, key, event string) string { return n.join("evt", machine, key, event) }
func (n Names) EventsOf(machine, key string) string     { return n.join("evt", machine, key, ">") }

// Effect is the subject of an effect, which may be <effect>=<route>; Effects matches all effects of one kind.
func (n Names) Effect(machine, effect, key string) string { return n.join("fx", machine, effect, key) }

func (n Names) Effects(machine, effect string) string { return n.join("fx", machine, effect, ">") }

// WorkerName is the durable consumer that the tasks of one kind are taken from.
func WorkerName(machine, effect string) string { return "fx-" + machine + "-" + effect }

// Timer is the subject that a message schedule lives under: one per entity and name.
func (n Names) Timer(machine, key, name string) string { return n.join("timer", machine, key, name) }

// Dead is the subject of a dead letter.
func (n Names) Dead(consumer, machine, key string) string {
	return n.join("dead", consumer, machine, key)
}

// API is the subject of an endpoint of the micro service.
func (n Names) API(tokens ...string) string { return n.join(append([]string{"api"}, tokens...)...) }

// Stream is the name of a stream: plain with the default prefix, so that two installations can share one NATS.
func (n Names) Stream(name string) string {
	if n.Prefix == "" || n.Prefix == DefaultPrefix {
		return name
	}
	return strings.ToUpper(n.Prefix) + "_" + name
}

// Bucket is the name of a bucket, likewise.
func (n Names) Bucket(name string) string {
	if n.Prefix == "" || n.Prefix == DefaultPrefix {
		return name
	}
	return n.Prefix + "_" + name
}

// ParseHeartbeat returns the key of the instance that a heartbeat is of.
func (n Names) ParseHeartbeat(subject string) (string, error) {
	return n.parseKey(subject, "hb", "heartbeat", 2, CheckLabel)
}

// ParseObservation returns the key of the instance that was observed.
func (n Names) ParseObservation(subject string) (string, error) {
	return n.parseKey(subject, "obs", "observation", 2, CheckLabel)
}

// ParseAcknowledge returns the service, <namespace>.<service>, of a confirmation.
func (n Names) ParseAcknowledge(subject string) (string, error) {
	return n.parseKey(subject, "ack", "confirmation", 1, CheckLabel)
}

// ParseSeen returns the key <tenant>.<resolver> of an acknowledgement.
func (n Names) ParseSeen(subject string) (string, error) {
	return n.parseKey(subject, "seen", "acknowledgement of a route", 1, CheckToken)
}

// parseKey returns what follows the first two tokens, a key with that many dots. It makes no copy: heartbeats are many.
func (n Names) parseKey(subject, verb, what string, dots int, check func(string) error) (string, error) {
	prefix := n.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	key, ok := strings.CutPrefix(subject, prefix)
	if ok {
		if key, ok = strings.CutPrefix(key, "."); ok {
			if key, ok = strings.CutPrefix(key, verb); ok {
				key, ok = strings.CutPrefix(key, ".")
			}
		}
	}
	if !ok || strings.Count(key, ".") != dots {
		return "", fmt.Errorf("streams: subject %q is no %s: %w", subject, what, ErrSubject)
	}
	for t := range strings.SplitSeq(key, ".") {
		if err := check(t); err != nil {
			return "", fmt.Errorf("streams: subject %q: %w", subject, err)
		}
	}
	return key, nil
}

// ErrSubject is wrapped by every error about a name that does not belong in a subject.
var ErrSubject = errors.New("not a valid name")

// Address is what a subject says about a message.
type Address struct {
	Machine string
	Key     string // <namespace>.<id> or <namespace>.<parent>.<id>
	Last    string // command, event type or effect, with its route
}

// ParseStored reads the subject of a stored command.
func (n Names) ParseStored(subject string) (Address, error) {
	rest, ok := strings.CutPrefix(subject, n.join("in")+".")
	if !ok {
		return Address{}, fmt.Errorf("streams: subject %q is no stored command: %w", subject, ErrSubject)
	}
	partition, rest, _ := strings.Cut(rest, ".")
	machine, rest, _ := strings.Cut(rest, ".")
	i := strings.LastIndexByte(rest, '.')
	if i < 0 {
		return Address{}, fmt.Errorf("streams: subject %q lacks a key or a command: %w", subject, ErrSubject)
	}
	a := Address{Machine: machine, Key: rest[:i], Last: rest[i+1:]}
	if err := a.check(); err != nil {
		return Address{}, fmt.Errorf("streams: subject %q: %w", subject, err)
	}
	if partition != strconv.Itoa(Partition(a.Machine, a.Key)) { // two owners would take commands of one entity
		return Address{}, fmt.Errorf("streams: subject %q is in another partition than its entity: %w", subject, ErrSubject)
	}
	return a, nil
}

// ParseEvent reads the subject of an event. parented says whether keys of its machine have a parent: without it a
// dotted event type could not be distinguished from a key.
func (n Names) ParseEvent(subject string, parented bool) (Address, error) {
	rest, ok := strings.CutPrefix(subject, n.join("evt")+".")
	if !ok {
		return Address{}, fmt.Errorf("streams: subject %q is no event: %w", subject, ErrSubject)
	}
	tokens := strings.Split(rest, ".")
	size := 2
	if parented {
		size = 3
	}
	if len(tokens) < size+2 {
		return Address{}, fmt.Errorf("streams: subject %q lacks a key or a type: %w", subject, ErrSubject)
	}
	a := Address{Machine: tokens[0], Key: strings.Join(tokens[1:1+size], "."), Last: strings.Join(tokens[1+size:], ".")}
	if err := a.check(); err != nil {
		return Address{}, fmt.Errorf("streams: subject %q: %w", subject, err)
	}
	return a, nil
}

// ParseEffect reads the subject of an effect.
func (n Names) ParseEffect(subject string) (Address, error) {
	rest, ok := strings.CutPrefix(subject, n.join("fx")+".")
	if !ok {
		return Address{}, fmt.Errorf("streams: subject %q is no effect: %w", subject, ErrSubject)
	}
	tokens := strings.SplitN(rest, ".", 3)
	if len(tokens) < 3 {
		return Address{}, fmt.Errorf("streams: subject %q lacks a key: %w", subject, ErrSubject)
	}
	effect, route, routed := strings.Cut(tokens[1], "=")
	a := Address{Machine: tokens[0], Last: effect, Key: tokens[2]}
	err := a.check()
	if routed {
		err = errors.Join(err, CheckLabel(route))
	}
	if err != nil {
		return Address{}, fmt.Errorf("streams: subject %q: %w", subject, err)
	}
	a.Last = tokens[1]
	return a, nil
}

func (a Address) check() error {
	if err := CheckToken(a.Machine); err != nil {
		return err
	}
	for t := range strings.SplitSeq(a.Last, ".") { // of an event type
		if err := CheckToken(t); err != nil {
			return err
		}
	}
	_, _, _, err := SplitKey(a.Key)
	return err
}

// CheckToken refuses what cannot be the name of a machine, a command or an effect, or a token of an event type. A
// longer one would make a line that the server closes the connection for.
func CheckToken(s string) error {
	if s == "" || len(s) > 63 {
		return fmt.Errorf("a token has 1 to 63 characters, not %d: %w", len(s), ErrSubject)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			continue
		}
		return fmt.Errorf("token %q may hold letters, digits, hyphens and underscores: %w", s, ErrSubject)
	}
	return nil
}

// SplitKey takes a key apart and checks its parts.
func SplitKey(key string) (namespace, parent, id string, err error) {
	tokens := strings.Split(key, ".")
	switch len(tokens) {
	case 2:
		namespace, id = tokens[0], tokens[1]
	case 3:
		namespace, parent, id = tokens[0], tokens[1], tokens[2]
	default:
		return "", "", "", fmt.Errorf("key %q is not <namespace>.<id>: %w", key, ErrSubject)
	}
	for _, t := range tokens {
		if err := CheckLabel(t); err != nil {
			return "", "", "", err
		}
	}
	return namespace, parent, id, nil
}

// maxSubject leaves room for a reply in a line of the protocol: with a longer one than 4 KiB the server ends the connection.
const maxSubject = 4<<10 - 256

// Storable reports whether any stream can take a message under the subject. Of one with an empty token the server says that no stream
// takes it, as it does where a stream has no leader. Wildcards are taken as they are.
func Storable(subject string) bool {
	return subject != "" && len(subject) <= maxSubject && !strings.ContainsAny(subject, " \t\r\n") &&
		subject[0] != '.' && subject[len(subject)-1] != '.' && !strings.Contains(subject, "..")
}

// CheckLabel refuses everything but a DNS label, ^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$ (RFC 1123, 2.1).
func CheckLabel(s string) error {
	if s == "" {
		return fmt.Errorf("a name is empty: %w", ErrSubject)
	}
	if len(s) > 63 {
		return fmt.Errorf("name of %d characters is longer than 63: %w", len(s), ErrSubject)
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' && i > 0 && i < len(s)-1 {
			continue
		}
		return fmt.Errorf("name %q may hold a-z, 0-9 and inner hyphens: %w", s, ErrSubject)
	}
	return nil
}

// LabelOf makes a label ([CheckLabel]) of a name, or is empty where nothing is left of that.
func LabelOf(name string) string {
	if CheckLabel(name) == nil {
		return name
	}
	label := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "-")
	if CheckLabel(label) != nil {
		return ""
	}
	return label
}

// Partition is where the commands of an entity are stored: the server's own partition function over machine,
// namespace and the token after it (FNV-1a, 32 bits, modulo), so that the children of one parent share one.
func Partition(machine, key string) int {
	tokens := strings.SplitN(key, ".", 3)
	h := fnv.New32a()
	h.Write([]byte(machine)) // never fails
	for _, t := range tokens[:min(2, len(tokens))] {
		h.Write([]byte(t))
	}
	return int(h.Sum32() % Partitions)
}

// EmbeddedName is the name of the NATS server within a control plane that is no member of a cluster.
const EmbeddedName = "instar"

// Where the log lines of an entity are; where to ask that what a stream has acknowledged be on disk, or whoever schedules tasks why one waits; where the disk is probed; who looks after a service is asked when its instances were
// heard last; where the values of a bucket are published as they are stored, of one key, or > for all; where a tenant's data is told to be elsewhere, and a resolver says which epoch it has seen.
func (n Names) Log(machine, key string) string      { return n.join("log", machine, key) }
func (n Names) Sync(stream string) string           { return n.join("sync", stream) }
func (n Names) Why() string                         { return n.join("why") }
func (n Names) Probe() string                       { return n.join("probe") }
func (n Names) Live(bucket, key string) string      { return n.join("live", bucket, key) }
func (n Names) Heard() string                       { return n.join("heard") }
func (n Names) Moved(tenant string) string          { return n.join("moved", tenant) }
func (n Names) Seen(tenant, resolver string) string { return n.join("seen", tenant, resolver) }

// Heartbeat is where an instance says that it is alive.
func (n Names) Heartbeat(namespace, service, id string) string {
	return n.join("hb", namespace, service, id)
}

// Acknowledge is the subject on which a watcher of a service confirms up to which index it acts on what it has received.
func (n Names) Acknowledge(namespace, service string) string {
	return n.join("ack", namespace, service)
}

// AnyKey matches the keys of all entities of a machine: namespace.id, or namespace.parent.id of one that has a parent.
func AnyKey(hasParent bool) string {
	if hasParent {
		return "*.*.*"
	}
	return "*.*"
}

// Classes of events, and of the records of an audit (package audit): each has a stream, and a subject of all its records.
var Classes = []string{"state", "resource", "error", "progress"}

func (n Names) AuditStream(class string) string { return n.Stream("AUDIT_" + strings.ToUpper(class)) }

func (n Names) Audit(class, machine, key string) string { return n.join("audit", class, machine, key) }
func (n Names) Audits(class string) string              { return n.join("audit", class, ">") }

// Observation is the subject on which a node reports to the owner of an instance what it has observed. The others match all of a kind: observations, heartbeats, confirmations, stored commands, or cmd, in, evt, fx, timer, dead, hb, obs, ack, audit, copy, live or sync.
func (n Names) Observation(key string) string     { return n.join("obs", key) }
func (n Names) Observations() string              { return n.join("obs", "*", "*", "*") }
func (n Names) Heartbeats() string                { return n.join("hb", "*", "*", "*") }
func (n Names) Acknowledgements() string          { return n.join("ack", "*", "*") }
func (n Names) StoredAll() string                 { return n.join("in", ">") }
func (n Names) Under(kind string) string          { return n.join(kind, ">") }
func (n Names) Provider(kind, verb string) string { return n.join("provider", kind, verb) }
func (n Names) Worker(queue string) string        { return n.join("worker", queue) }
