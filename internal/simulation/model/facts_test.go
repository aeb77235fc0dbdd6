package model

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// facts are what the model had wrong until the server said otherwise. Each runs on both, as conformance does.
var facts = []struct {
	fact string
	run  func(f *facter)
}{
	{"a purge that makes room for a delivery does not start it: the next message, pull or ack does", func(f *facter) {
		f.stream("limits", nil)
		f.consumer(map[string]any{"max_ack_pending": 1})
		f.publish("f.x", nil)
		f.publish("f.y", nil)
		f.pull(2, time.Hour)
		f.api("STREAM.PURGE.F", map[string]any{"filter": "f.x"})
		f.info()
		f.publish("f.z", nil)
	}},
	{"a message that is removed while it waits for its ack is terminated after what has removed it", func(f *facter) {
		f.stream("limits", map[string]any{"max_msgs_per_subject": 1})
		f.consumer(nil)
		f.publish("f.x", nil)
		f.pull(1, 0)
		f.publish("f.x", nil)
		f.info()
	}},
	{"a subscription with wildcards gets what a push consumer delivers, but does not start it", func(f *facter) {
		f.stream("limits", nil)
		f.publish("f.x", nil)
		f.consumer(map[string]any{"deliver_subject": "box.push"})
		f.info()
	}},
	{"a message is counted once for each filter of a consumer that it lies under", func(f *facter) {
		f.stream("limits", nil)
		f.consumer(map[string]any{"filter_subjects": []string{"f.*.1", "f.x.>"}})
		f.publish("f.x.1", nil)
		f.info()
	}},
	{"a consumer whose filters are taken away is not told of new messages", func(f *facter) {
		f.stream("limits", nil)
		f.consumer(map[string]any{"filter_subject": "f.x"})
		f.consumer(nil)
		f.pull(1, time.Hour)
		f.publish("f.y", nil)
		f.info()
	}},
	{"a purge of one message of a stream in files tells the consumers of the filter, not of the message's subject", func(f *facter) {
		f.stream("limits", map[string]any{"storage": "file"})
		f.consumer(map[string]any{"filter_subject": "f.x"})
		f.publish("f.x", nil)
		f.publish("f.y", nil)
		f.api("STREAM.PURGE.F", map[string]any{"keep": 1})
		f.info()
	}},
	{"the end of a batch adds a header that may be too much for the stream, which then has a part of the batch", func(f *facter) {
		f.stream("limits", map[string]any{"discard": "new", "max_bytes": 230, "allow_atomic": true})
		f.publish("f.x", nats.Header{"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"1"}})
		f.publish("f.y", nats.Header{"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"2"}})
		f.publish("f.z", nats.Header{"Nats-Batch-Id": {"b"}, "Nats-Batch-Sequence": {"3"}, "Nats-Batch-Commit": {"eob"}})
		f.api("STREAM.INFO.F", nil)
	}},
	{"a question to the API that there is none of is not answered, and a consumer that is not there has no responders to a pull, but none to a reset", func(f *facter) {
		f.stream("limits", nil)
		f.api("NONSENSE", nil)
		f.api("CONSUMER.MSG.NEXT.F.none", nil)
		f.api("CONSUMER.RESET.F.none", nil)
	}},
	{"new limits of a stream are kept to first over all subjects, then for each", func(f *facter) {
		f.stream("limits", nil)
		f.publish("f.x", nil)
		f.publish("f.y", nil)
		f.publish("f.z", nil)
		f.publish("f.y", nil)
		f.update("limits", map[string]any{"max_msgs": 3, "max_msgs_per_subject": 1})
		f.api("STREAM.INFO.F", nil)
	}},
	{"a consumer that looks at what waits for acks looks for messages only if it has to deliver one again", func(f *facter) {
		f.stream("limits", nil)
		f.consumer(map[string]any{"filter_subject": "f.x"})
		f.publish("f.x", nil)
		f.pull(2, time.Hour)
		f.publish("f.y", nil)
		f.nak(`-NAK {"delay": 3600000000000}`)
		f.settle()
		f.api("STREAM.PURGE.F", map[string]any{"filter": "f.x", "seq": 1})
		f.info()
	}},
	{"a pause that is over, or was when it was asked for, lets a consumer look for messages once at most", func(f *facter) {
		f.stream("limits", nil)
		f.consumer(map[string]any{"deliver_subject": "push.c", "filter_subjects": []string{"f.y", "f.z"}})
		f.publish("f.y", nil)
		f.api("CONSUMER.PAUSE.F.c", map[string]any{"pause_until": "2000-01-01T00:00:00Z"})
		f.publish("f.x", nil)
		f.nak(`-NAK {"delay": 3600000000000}`)
		f.settle()
		f.api("STREAM.PURGE.F", map[string]any{"keep": 0, "seq": 1})
		f.info()
	}},
	{"a command whose id was seen is told so after what it expects was checked, on a single server", func(f *facter) {
		f.stream("limits", nil)
		h := nats.Header{"Nats-Msg-Id": {"1"}, "Nats-Expected-Last-Subject-Sequence": {"0"}}
		f.publish("f.x", h)
		f.publish("f.x", h)
	}},
}

func TestWhatTheModelHadWrong(t *testing.T) {
	t.Parallel()
	for _, c := range facts {
		t.Run(c.fact, func(t *testing.T) {
			t.Parallel()
			f := &facter{p: newPair(t, nil)}
			c.run(f)
			f.p.quiet()
			require.Empty(t, f.p.different)
		})
	}
}

// facter runs operations on a stream F and its consumer c.
type facter struct {
	p   *pair
	got delivered // last
}

func (f *facter) api(verb string, body any) {
	var data []byte
	if body != nil {
		data, _ = json.Marshal(body)
	}
	f.p.ask("api", &nats.Msg{Subject: "$JS.API." + verb, Data: data}, verb == "STREAM.INFO.F" || verb == "CONSUMER.INFO.F.c")
	f.p.arrivals("api")
}

func (f *facter) stream(retention string, more map[string]any) {
	c := map[string]any{"name": "F", "subjects": []string{"f.>"}, "retention": retention, "storage": "memory", "discard": "old", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "num_replicas": 1}
	for k, v := range more {
		c[k] = v
	}
	if f.p.servers > 1 {
		c["num_replicas"] = f.p.servers
	}
	f.api("STREAM.CREATE.F", c)
	f.group().reach("STREAM.%s.F")
}

func (f *facter) update(retention string, more map[string]any) {
	c := map[string]any{"name": "F", "subjects": []string{"f.>"}, "retention": retention, "storage": "memory", "discard": "old", "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "num_replicas": 1}
	for k, v := range more {
		c[k] = v
	}
	f.api("STREAM.UPDATE.F", c)
}

// nak says something else than an ack to what was delivered last.
func (f *facter) nak(body string) {
	f.p.send("ack", "", &nats.Msg{Subject: f.got.model.Reply, Data: []byte(body)}, &nats.Msg{Subject: f.got.real.Reply, Data: []byte(body)})
	f.settle()
}

func (f *facter) consumer(more map[string]any) {
	c := map[string]any{"durable_name": "c", "name": "c", "ack_policy": "explicit", "deliver_policy": "all", "replay_policy": "instant", "ack_wait": int64(time.Hour)}
	for k, v := range more {
		c[k] = v
	}
	f.api("CONSUMER.CREATE.F.c", map[string]any{"stream_name": "F", "config": c})
	f.group().reach("CONSUMER.%s.F.c")
	f.info()
}

func (f *facter) publish(subject string, h nats.Header) {
	f.p.ask("publish", &nats.Msg{Subject: subject, Header: h, Data: []byte("b")}, false)
	for _, d := range f.p.arrivals("publish") {
		f.got = d
	}
	f.settle()
}

func (f *facter) pull(n int, wait time.Duration) {
	body := map[string]any{"batch": n, "no_wait": wait == 0}
	if wait > 0 {
		body["expires"] = int64(wait)
	}
	data, _ := json.Marshal(body)
	m := &nats.Msg{Subject: "$JS.API.CONSUMER.MSG.NEXT.F.c", Data: data}
	f.p.send("pull", "pull", m, m)
	for _, d := range f.p.arrivals("pull") {
		f.got = d
	}
	f.info()
}

func (f *facter) info() {
	f.settle()
	f.api("CONSUMER.INFO.F.c", nil)
}

// settle lets the server do what it does after an answer.
func (f *facter) settle() { time.Sleep(20 * time.Millisecond) }
