// Package buffers lists what may wait in a server between a client and the disk, with its bounds: /readyz?verbose and `instar doctor` print it. A buffer that is added
// anywhere has its row here.
package buffers

import (
	"fmt"
	"strconv"

	"github.com/dustin/go-humanize"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/watch"
	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/engine"
	"github.com/bcc94042/instar/consumers/observer"
	"github.com/bcc94042/instar/consumers/orchestrator"
	"github.com/bcc94042/instar/consumers/prober"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/streams"
)

// AtOnce is how much is done at a time.
type AtOnce struct {
	Effects int // of a kind, on all nodes together
	Tasks   int // on each node
}

// Of are the bounds of what may wait between a client and the disk, in the order in which a command passes it, and then of what goes back to watchers and to the parts of this process.
func Of(l api.Limits, at AtOnce) []admin.Buffer {
	body, largest := humanize.IBytes(consumers.MaxBody), humanize.IBytes(streams.MaxMessage)
	bound := func(n int) string {
		if n == 0 {
			return "no bound"
		}
		return strconv.Itoa(n)
	}
	waits := func(keys int) string { return humanize.IBytes(uint64(index.BytesFor(keys))) }
	return []admin.Buffer{
		{Name: "HTTP connections", Bound: fmt.Sprintf("%s (limits.connections), each with one request of up to %s", bound(l.Connections.All), body)},
		{Name: "NATS requests and reads", Bound: fmt.Sprintf("%s (limits.questions), each of up to %s; of a connection the client library keeps 64 MiB or 524288", bound(l.Questions.All), largest)},
		{Name: "commands that wait for a turn", Bound: fmt.Sprintf("%s (limits.commands), %s of a client, each of up to %s", bound(l.Commands.All), bound(l.Commands.Each), body)},
		{Name: "commands on their way to the stream and the engine", Bound: fmt.Sprintf("%s (limits.commandsAtOnce), and those of clients whose turn has passed, within limits.commands", bound(l.CommandsAtOnce))},
		{Name: "a connection to the embedded NATS server", Bound: "64 MiB of what a slow reader has not taken; then it is closed"},
		{Name: "stream COMMANDS", Bound: fmt.Sprintf("the disk (store.max); messages of up to %s. Behind it the server keeps up to 100000 messages or 128 MiB that are not written yet, and then refuses", largest)},
		{Name: "a partition of the engine", Bound: fmt.Sprintf("%d commands taken and %d delivered, %d partitions", engine.DefaultBatch, 8*engine.DefaultBatch, streams.Partitions)},
		{Name: "cached entities", Bound: fmt.Sprintf("%d of a partition, each with up to 64 of its last outcomes and all with about 8192, or 8 each; those without commands for half a minute go", engine.DefaultCache)},
		{Name: "messages of an entity in one commit", Bound: fmt.Sprintf("%s and one command more; a value has at most %s", humanize.IBytes(engine.MaxOutbox), largest)},
		{Name: "effects under way", Bound: fmt.Sprintf("%d of a kind on all nodes (effects.concurrency), and %d tasks on this one (tasks.concurrency); what waits is in the stream EFFECTS", at.Effects, at.Tasks)},
		{Name: "between a bucket and its index", Bound: fmt.Sprintf("32 MiB or %d messages, by flow control of the server", index.Inflight)},
		{Name: "changes that a feed of watches has not sent", Bound: fmt.Sprintf("of each bucket: %d entities for each of its watches and at most %d, each as it is then, and %s of values, %s from %d watches on; beyond that they are sent a new snapshot",
			watch.Waiting, watch.MostKeys, waits(watch.Waiting), waits(watch.MostKeys), watch.MostKeys/watch.Waiting)},
		{Name: "changes that a feed has sent and not all of its watches have", Bound: fmt.Sprintf("%d entities, each as it is then, and %s; who lacks more is sent a new snapshot", watch.Waiting, humanize.IBytes(watch.WaitingBytes))},
		{Name: "changes for the catalog", Bound: fmt.Sprintf("of each of its buckets %d entities, each as it is then, and %s of values; beyond that it reads its index again", discovery.Waiting, waits(discovery.Waiting))},
		{Name: "changes for the orchestrator and the board of tasks", Bound: fmt.Sprintf("in each of 4 subscriptions %d entities, each as it is then, and %s of values; beyond that they read the index again", orchestrator.Buffered, waits(orchestrator.Buffered))},
		{Name: "changes for the prober", Bound: fmt.Sprintf("in each of 2 subscriptions %d entities, each as it is then, and %s of values; beyond that it reads the index again", prober.ChangeBuffer, waits(prober.ChangeBuffer))},
		{Name: "heartbeats, views and acks for the prober", Bound: fmt.Sprintf("%d of each; what comes beyond that is dropped", prober.BeatBuffer)},
		{Name: "changes for an observer", Bound: fmt.Sprintf("of each machine %d entities, each as it is then, and %s of values; beyond that it looks when its polls do", observer.Buffered, waits(observer.Buffered))},
	}
}
