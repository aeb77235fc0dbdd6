package streams_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/streams"
)

// Where things are, with the default prefix.
func ExampleNames() {
	var names streams.Names
	fmt.Println(names.Command("service", "default.web", "update"))
	fmt.Println(names.Event("service", "default.web", "service.ready"))
	fmt.Println(names.EventsOf("service", "default.web"))
	fmt.Println(names.Effect("service", "apply", "default.web"))
	// Output:
	// instar.cmd.service.default.web.update
	// instar.evt.service.default.web.service.ready
	// instar.evt.service.default.web.>
	// instar.fx.service.apply.default.web
}

// Another prefix is another installation in the same NATS: its streams and buckets have other names, too.
func ExampleNames_Stream() {
	var one streams.Names
	two := streams.Names{Prefix: "staging"}
	fmt.Println(one.Stream("EVENTS"), one.Bucket("services"))
	fmt.Println(two.Stream("EVENTS"), two.Bucket("services"))
	// Output:
	// EVENTS services
	// STAGING_EVENTS staging_services
}

// The type of an event has dots as the key has: whether the machine has a parent says where one ends.
func ExampleNames_ParseEvent() {
	var names streams.Names
	a, err := names.ParseEvent("instar.evt.service.default.web.service.ready", false)
	fmt.Println(a.Machine, a.Key, a.Last, err)
	a, err = names.ParseEvent("instar.evt.instance.default.web.i-1.instance.healthy", true)
	fmt.Println(a.Machine, a.Key, a.Last, err)
	_, err = names.ParseEvent("instar.cmd.service.default.web.update", false)
	fmt.Println(errors.Is(err, streams.ErrSubject))
	// Output:
	// service default.web service.ready <nil>
	// instance default.web.i-1 instance.healthy <nil>
	// true
}

// A command that lies in another partition than its entity is refused: two owners would take commands of one entity.
func ExampleNames_ParseStored() {
	var names streams.Names
	a, err := names.ParseStored(names.Stored("service", "default.web", "update"))
	fmt.Println(a.Key, a.Last, err)
	other := (streams.Partition("service", "default.web") + 1) % streams.Partitions
	_, err = names.ParseStored(fmt.Sprintf("instar.in.%d.service.default.web.update", other))
	fmt.Println(errors.Is(err, streams.ErrSubject))
	// Output:
	// default.web update <nil>
	// true
}

// The task of an effect is named by the effect first, so that a worker can take all of one kind.
func ExampleNames_ParseEffect() {
	var names streams.Names
	a, err := names.ParseEffect("instar.fx.service.apply.default.web")
	fmt.Println(a.Machine, a.Last, a.Key, err, streams.WorkerName(a.Machine, a.Last))
	// Output: service apply default.web <nil> fx-service-apply
}

// The children of one parent are in one partition, so one owner takes all of their commands.
func ExamplePartition() {
	fmt.Println(streams.Partition("instance", "default.web.i-1") == streams.Partition("instance", "default.web.i-2"))
	// Output: true
}

// A key has two parts or three.
func ExampleSplitKey() {
	namespace, parent, id, err := streams.SplitKey("default.web.i-1")
	fmt.Println(namespace, parent, id, err)
	_, _, _, err = streams.SplitKey("web")
	fmt.Println(err)
	// Output:
	// default web i-1 <nil>
	// key "web" is not <namespace>.<id>: not a valid name
}

// A label says what is wrong with it.
func ExampleCheckLabel() {
	fmt.Println(streams.CheckLabel("web-1"))
	fmt.Println(streams.CheckLabel("Web"))
	fmt.Println(streams.CheckLabel("web-"))
	fmt.Println(streams.CheckLabel(""))
	// Output:
	// <nil>
	// name "Web" may hold a-z, 0-9 and inner hyphens: not a valid name
	// name "web-" may hold a-z, 0-9 and inner hyphens: not a valid name
	// a name is empty: not a valid name
}

// 0 is that there is no entity, and * that there is one, at whatever revision.
func ExampleParseExpected() {
	for _, text := range []string{"7", "0", "*", "6,7"} {
		e, ok := streams.ParseExpected(text)
		fmt.Println(text, ok, "none:", e.Holds(0), "at 7:", e.Holds(7))
	}
	_, ok := streams.ParseExpected("7, 8")
	fmt.Println(ok)
	// Output:
	// 7 true none: false at 7: true
	// 0 true none: true at 7: false
	// * true none: false at 7: true
	// 6,7 true none: false at 7: true
	// false
}

// Bare numbers are seconds, and nobody waits for more than a day.
func ExampleParseWait() {
	for _, text := range []string{"30", "1m30s", "100h", "-1s", "soon"} {
		wait, ok := streams.ParseWait(text)
		if !ok {
			fmt.Println(text, "is none")
			continue
		}
		fmt.Println(text, wait)
	}
	// Output:
	// 30 30s
	// 1m30s 1m30s
	// 100h 24h0m0s
	// -1s is none
	// soon is none
}

// Only inboxes are answered: whoever asks could publish anywhere otherwise, with the rights of the one who answers.
func ExampleInbox() {
	fmt.Printf("%q\n", streams.Inbox("_INBOX.abc.1"))
	fmt.Printf("%q\n", streams.Inbox("instar.cmd.service.default.web.delete"))
	// Output:
	// "_INBOX.abc.1"
	// ""
}

// Addresses are shown without what opens the door.
func ExampleWithoutSecrets() {
	fmt.Println(streams.WithoutSecrets("nats://app:secret@10.0.0.1:4222,nats://10.0.0.2:4222"))
	// Output: nats://10.0.0.1:4222,nats://10.0.0.2:4222
}

// The key of a sender counts for one entity: the same one on another entity is another command.
func ExampleCommandID() {
	id := streams.CommandID("service", "default.web", "order-4711")
	fmt.Println(id, streams.UnscopeID("service", "default.web", id))
	fmt.Println(streams.MadeUp(streams.MadeUpID("x")), streams.MadeUp("order-4711"))
	// Output:
	// service/default.web/order-4711 order-4711
	// true false
}

// The id of an event tells which version of the entity it belongs to, and its place among the events of that.
func ExampleNumberOf() {
	fmt.Println(streams.NumberOf("service", "default.web", "service/default.web/7/1"))
	fmt.Println(streams.NumberOf("service", "default.web", "service/default.web/refused/12/1769428800000000000/0"))
	// Output:
	// 7 1 true
	// 0 0 false
}

// Lives are whole seconds, one at least; a schedule keeps its nanoseconds.
func ExampleSchedule() {
	m := nats.NewMsg("instar.timer.service.default.web.deadline")
	streams.Keep(m, 1500*time.Millisecond)
	streams.Schedule(m, time.Date(2026, 1, 26, 12, 0, 0, 500, time.UTC), "instar.cmd.service.default.web.elapsed")
	fmt.Println(m.Header["Nats-TTL"], m.Header["Nats-Schedule"])
	// Output: [1s] [@at 2026-01-26T12:00:00.0000005Z]
}

// Headers of NATS keep their case; what is read is found in any.
func ExampleHeader() {
	fmt.Println(streams.Header(nats.Header{"CE-Type": {"order.paid"}}, "ce-type"))
	// Output: order.paid
}

// Where the values of a bucket are, for the nats command line.
func ExampleBucketSubject() {
	subject := streams.BucketSubject("services", "default.web")
	fmt.Println(streams.BucketStream("services"), subject)
	fmt.Println(streams.BucketKey(subject))
	// Output:
	// KV_services $KV.services.default.web
	// services default.web true
}
