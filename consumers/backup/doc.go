// Package backup copies everything that an installation has stored while it runs, and makes another installation of the copy.
//
// # What a backup is
//
// One file: JSON lines, compressed by zstd (RFC 8878). A head, then a section for every stream, then an end that counts what came before; a file
// without its end, or with other counts, is not complete. See [Head], [Section], [Message] and [End].
//
// # Why it is consistent although nothing stops
//
// Streams are read one after the other, in an order in which what follows from something is read before it:
//
//  1. operations and views, which follow from values;
//  2. commands that wait: one that is taken meanwhile is in the value that is read after it, whose mark says so;
//  3. values, each as it is at one moment. The engine writes state, mark and outbox of a transition at once, so each of them is whole;
//  4. answers to keys, events and dead letters. Answers and events that are newer than the value of their entity are left out by the restore, those events
//     that the value's outbox has and the stream lacked are added, those of refusals among them;
//  5. other streams, such as those of outboxes, as snapshots of the server with their consumers. Relays find out by themselves how far
//     their stream is. A restored stream mirrors and sources no other one of its account any more.
//
// So everything that was answered before the backup began is in it. Schedules of timers and tasks are not: both stand in the values, and are made again.
// Where the installation has a bucket of a machine that the process does not have, there is no backup: see [ErrUnknownBucket].
//
// Durable consumers of others go on behind what they had done, under the configuration that they had; those of buckets begin anew, because a restore writes all values anew. Those that
// users of the role read have made on their copies are not in it, and are named in its end.
//
// # Why ids are fresh after a restore
//
// Others have seen what came after the backup. So the streams of a restore begin at a sequence, and versions go on from a number, that nobody can have seen:
// 100,000 for each second since the beginning of 2026, and an hour of them for clocks that differ. An installation that was never restored is below that, because it began at 1, after
// that day, and takes fewer messages. One that was restored is, too: it began at that number of then, and has taken fewer since. So of two restores the later one is above
// all that the other one, and whoever ran on it, has given out, whichever backups they are of and however soon the second follows, as long as the clocks of the two do not differ by more than
// the time between them. Where a backup shows that a clock goes wrong (it is of the future, or has a number above that of its time), numbers are also above those
// of the backup, by 100,000 for each second since and the hour. Revisions, sequences, fences and ids of events, which are made of versions, follow from
// these.
package backup

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Format is the version of the file. A file with a higher one is refused.
const Format = 1

// Head is the first line.
type Head struct {
	Format  int               `json:"instarBackup"`
	Version string            `json:"version"`        // of the program that made it
	At      time.Time         `json:"at"`             // everything that was answered before is in it
	Prefix  string            `json:"prefix"`         // of the subjects
	Last    uint64            `json:"last"`           // the highest sequence of any stream then
	Ends    map[string]uint64 `json:"ends,omitempty"` // the last one of each stream of the plan then; older backups do not say it
	Schemas map[string]int    `json:"schemas"`        // of the machines' values
	Others  []string          `json:"others"`         // streams that are not of the plan
}

// Kinds of sections.
const (
	KindBucket   = "bucket"   // values, as they are
	KindAnswers  = "answers"  // to the keys of senders
	KindCommands = "commands" // those that wait
	KindEntities = "entities" // values of the entities of a machine
	KindMessages = "messages" // of a stream
	KindSnapshot = "snapshot" // of a stream, in the format of its server
)

// Section begins the lines of one stream.
type Section struct {
	Stream    string                `json:"stream"` // as it is named here
	Kind      string                `json:"kind"`
	Machine   string                `json:"machine,omitempty"`
	Consumers []Consumer            `json:"consumers,omitempty"` // of others
	Snapshot  *streams.SnapshotHead `json:"snapshot,omitempty"`
}

// Consumer is a durable consumer, and the last message that it had done with all before it.
type Consumer struct {
	Config jetstream.ConsumerConfig `json:"config"`
	Floor  uint64                   `json:"floor"`
}

// Message is one message of a stream.
type Message struct {
	Subject string      `json:"s"`
	Seq     uint64      `json:"q"`
	Time    time.Time   `json:"t"`
	Header  nats.Header `json:"h,omitempty"`
	Data    []byte      `json:"d,omitempty"`
}

// End is the last line.
type End struct {
	At       time.Time      `json:"at"`
	Messages map[string]int `json:"messages"`          // and parts of snapshots, by stream
	Entities map[string]int `json:"entities"`          // that have a value, by stream: one that changed meanwhile has several messages
	Readers  []string       `json:"readers,omitempty"` // durable consumers of readers on their copies, as STREAM/NAME, which are not in it
	Missing  map[string]int `json:"missing"`           // values that the server has and could not read, by stream

	Others []Other `json:"-"` // what the sections of snapshots say
}

// line is one of them.
type line struct {
	Head    *Head    `json:"head,omitempty"`
	Section *Section `json:"section,omitempty"`
	Message *Message `json:"m,omitempty"`
	Part    []byte   `json:"part,omitempty"` // of a snapshot
	End     *End     `json:"end,omitempty"`
}
