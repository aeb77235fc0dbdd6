package kv_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
)

type price struct {
	Cents int `json:"cents"`
}

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

// A value is written at the revision that was read; 0 is that the key never held anything.
func ExampleBucket_Put() {
	js, over := store()
	defer over()
	ctx := context.Background()
	prices, err := kv.Open(ctx, js, "prices", kv.JSON[price]())
	fatal(err)
	rev, err := prices.Put(ctx, "default.tea", price{250}, 0)
	fmt.Println(rev, err)
	_, err = prices.Put(ctx, "default.tea", price{300}, 0) // somebody was first
	fmt.Println(kv.Conflict(err))
	got, err := prices.Get(ctx, "default.tea")
	fmt.Println(got.Value.Cents, got.Revision, err)
	_, err = prices.Get(ctx, "default.coffee")
	fmt.Println(errors.Is(err, kv.ErrNotFound))
	// Output:
	// 1 <nil>
	// true
	// 250 1 <nil>
	// true
}

// First what there is, then a mark, then what changes; the loop ends it. The last revision goes on where it stopped.
func ExampleBucket_Watch() {
	js, over := store()
	defer over()
	ctx := context.Background()
	prices, err := kv.Open(ctx, js, "prices", kv.JSON[price]())
	fatal(err)
	_, err = prices.Put(ctx, "default.tea", price{250}, 0)
	fatal(err)
	for e, err := range prices.Watch(ctx, "default.>", 0) {
		fatal(err)
		switch {
		case e.Synced:
			fmt.Println("that is all")
			_, err = prices.Put(ctx, "default.tea", price{300}, 1)
			fatal(err)
			continue
		default:
			fmt.Println(e.Key, e.Value.Cents, e.Revision)
		}
		if e.Revision == 2 {
			break
		}
	}
	// Output:
	// default.tea 250 1
	// that is all
	// default.tea 300 2
}
