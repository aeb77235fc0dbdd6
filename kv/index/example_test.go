package index_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/streams"
)

// store is a NATS server within this process with the bucket prices. Over ends it.
func store() (js jetstream.JetStream, over func()) {
	dir, err := os.MkdirTemp("", "kv")
	fatal(err)
	srv, err := server.NewServer(&server.Options{DontListen: true, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
	fatal(err)
	srv.Start()
	if !srv.ReadyForConnections(10 * time.Second) {
		log.Fatal("the server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	fatal(err)
	js, err = jetstream.New(nc)
	fatal(err)
	_, err = js.CreateStream(context.Background(), jetstream.StreamConfig{
		Name: streams.BucketStream("prices"), Subjects: []string{streams.BucketSubject("prices", ">")}, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew,
		AllowRollup: true, DenyDelete: true, AllowMsgTTL: true, // and no direct reads: Open refuses them
	})
	fatal(err)
	return js, func() {
		closed := nc.StatusChanged(nats.CLOSED)
		nc.Close()
		<-closed
		srv.Shutdown()
		srv.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}

func fatal(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// An index answers lists from memory. Wait makes it hold what was written at a revision.
func ExampleIndex_List() {
	js, over := store()
	defer over()
	ctx, cancel := context.WithCancel(context.Background())
	ix := index.New(js, "prices", func(_ string, value []byte) (index.Meta, error) { return index.DescribeJSON(value) }, index.Options{})
	ended := make(chan error, 1)
	go func() { ended <- ix.Run(ctx) }()
	for i, value := range []string{`{"state": "on", "labels": {"team": "a"}}`, `{"state": "on", "labels": {"team": "b"}}`, `{"state": "off"}`} {
		_, err := js.Publish(ctx, streams.BucketSubject("prices", fmt.Sprint("default.k", i)), []byte(value))
		fatal(err)
	}
	fatal(ix.Wait(ctx, 3))
	team, _ := index.ParseSelectors("team in (a,c)")
	page := ix.List(index.Query{Namespace: "default", States: []string{"on"}, Labels: team})
	for _, item := range page.Items {
		fmt.Println(item.Key, item.State, item.Labels)
	}
	fmt.Println(ix.Counts("default"))
	cancel()
	fmt.Println(<-ended)
	// Output:
	// default.k0 on map[team:a]
	// map[off:1 on:2]
	// <nil>
}

// What differs matches, too, where there is no label at all, as in Kubernetes.
func ExampleSelector() {
	fmt.Println(index.Selector{Label: "env", Op: index.NotEqual, Values: []string{"dev"}})
	fmt.Println(index.Selector{Label: "tier", Op: index.In, Values: []string{"a", "b"}})
	fmt.Println(index.Selector{Label: "canary", Op: index.Exists})
	// Output:
	// env!=dev
	// tier in (a,b)
	// canary
}

// What cannot be read as a selector is refused, and not taken for a label that nobody has.
func ExampleParseSelectors_refused() {
	_, err := index.ParseSelectors("tier in a")
	fmt.Println(err)
	_, err = index.ParseSelectors("!canary")
	fmt.Println(err)
	// Output:
	// kv: selector "tier in a": values must be in brackets
	// kv: selector "!canary": not a label
}
