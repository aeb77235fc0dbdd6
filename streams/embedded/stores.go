package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The server syncs the store of each stream by a timer of its own, and has no call for it. These are its functions; where its
// fields are is found out at start, and that it is still as it was by [provenStores].

//go:linkname streamsOf github.com/nats-io/nats-server/v2/server.(*Account).streams
func streamsOf(*server.Account) []unsafe.Pointer

//go:linkname nameOf github.com/nats-io/nats-server/v2/server.(*stream).name
func nameOf(stream unsafe.Pointer) string

//go:linkname syncBlocks github.com/nats-io/nats-server/v2/server.(*fileStore).syncBlocks
func syncBlocks(store unsafe.Pointer)

// stores knows where the server keeps the stores of its streams.
type stores struct {
	store              uintptr // of a stream
	mu, last           uintptr // of a file store
	blockMu, needsSync uintptr // of a block of it
}

// fileStore is what the server stores streams in, unless they are in memory.
const fileStore = "*server.fileStore"

// store is one stream's.
type store struct {
	server.StreamStore
	name string
}

// of are the stores of all streams of a server that are in files.
func (l *stores) of(srv *server.Server) []store {
	var list []store
	for _, stream := range streamsOf(srv.GlobalAccount()) {
		s := store{StreamStore: *(*server.StreamStore)(unsafe.Add(stream, l.store)), name: nameOf(stream)}
		if reflect.TypeOf(s.StreamStore) != nil && reflect.TypeOf(s.StreamStore).String() == fileStore {
			list = append(list, s)
		}
	}
	return list
}

func (s store) pointer() unsafe.Pointer { return reflect.ValueOf(s.StreamStore).UnsafePointer() }

// sync returns when all is on disk that was written before. An error is the store's: it takes no writes any more, which its
// writers and [Server.Health] find out.
func (s store) sync() { syncBlocks(s.pointer()) }

// dirty reports whether the last block of a store has something that is not synced.
func (l *stores) dirty(s store) bool {
	mu := (*sync.RWMutex)(unsafe.Add(s.pointer(), l.mu))
	mu.RLock()
	block := *(*unsafe.Pointer)(unsafe.Add(s.pointer(), l.last))
	mu.RUnlock()
	mu = (*sync.RWMutex)(unsafe.Add(block, l.blockMu))
	mu.RLock()
	defer mu.RUnlock()
	return *(*bool)(unsafe.Add(block, l.needsSync))
}

// finding looks for fields by their names and types, and remembers what is missing.
type finding struct{ missing error }

func (f *finding) field(of reflect.Type, name, kind string) reflect.StructField {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() == reflect.Struct {
		if found, ok := of.FieldByName(name); ok && found.Type.String() == kind {
			return found
		}
	}
	f.missing = errors.Join(f.missing, fmt.Errorf("streams: %s of the server has no field %s of type %s", of, name, kind))
	return reflect.StructField{Type: reflect.TypeFor[struct{}]()}
}

// provenStores proves once in a process, with a server and a stream that are thrown away, that this version of the server can
// be told to sync: what was written is marked as not synced, and not any more afterwards.
var provenStores = sync.OnceValues(func() (l *stores, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("streams: %v", r)
		}
	}()
	dir, err := os.MkdirTemp("", "instar-sync-")
	if err != nil {
		return nil, fmt.Errorf("streams: cannot make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	srv, err := server.NewServer(&server.Options{ServerName: "sync", StoreDir: dir, JetStream: true, NoSigs: true, NoLog: true, DontListen: true, SyncInterval: time.Hour, DisableJetStreamBanner: true})
	if err != nil {
		return nil, fmt.Errorf("streams: cannot configure a server: %w", err)
	}
	srv.Start()
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		return nil, fmt.Errorf("streams: cannot connect to a server: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("streams: cannot use a server: %w", err)
	}
	return proveStores(srv, js)
})

func proveStores(srv *server.Server, js jetstream.JetStream) (*stores, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "SYNC", Subjects: []string{"sync"}}); err != nil {
		return nil, fmt.Errorf("streams: cannot make a stream: %w", err)
	}
	if _, err := js.Publish(ctx, "sync", []byte("what is synced")); err != nil {
		return nil, fmt.Errorf("streams: cannot write to a stream: %w", err)
	}
	l, f := &stores{}, &finding{}
	account := f.field(reflect.TypeFor[server.Account](), "js", "*server.jsAccount")
	all := f.field(account.Type, "streams", "map[string]*server.stream")
	if f.missing != nil {
		return nil, f.missing
	}
	if l.store = f.field(all.Type.Elem(), "store", "server.StreamStore").Offset; f.missing != nil {
		return nil, f.missing
	}
	list := l.of(srv)
	if len(list) != 1 || list[0].name != "SYNC" {
		return nil, fmt.Errorf("streams: of the server's streams one is stored, and %d are found", len(list))
	}
	fs := reflect.TypeOf(list[0].StreamStore)
	last := f.field(fs, "lmb", "*server.msgBlock")
	l.mu, l.last = f.field(fs, "mu", "sync.RWMutex").Offset, last.Offset
	l.blockMu, l.needsSync = f.field(last.Type, "mu", "sync.RWMutex").Offset, f.field(last.Type, "needSync", "bool").Offset
	if f.missing != nil {
		return nil, f.missing
	}
	if !l.dirty(list[0]) {
		return nil, errors.New("streams: the server does not say what it has not synced")
	}
	if list[0].sync(); l.dirty(list[0]) {
		return nil, errors.New("streams: the server does not sync when it is told to")
	}
	return l, nil
}
