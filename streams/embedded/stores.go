package embedded

// The file stores of nats-server, which syncs each stream by a timer of its own or with each write, and has no call for it. Its functions are reached by linkname, and its
// fields at offsets that proveStores finds by reflection; provenStores and provenRelaxed try both on a throwaway server, once in a process, before barrier.go and flush.go sync
// anything through them. If nats-server has changed, Start logs that, and streams are synced by their timers, or with each write.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

//go:linkname streamsOf github.com/nats-io/nats-server/v2/server.(*Account).streams
func streamsOf(*server.Account) []unsafe.Pointer

//go:linkname nameOf github.com/nats-io/nats-server/v2/server.(*stream).name
func nameOf(stream unsafe.Pointer) string

//go:linkname lookupStream github.com/nats-io/nats-server/v2/server.(*Account).lookupStream
func lookupStream(account *server.Account, name string) (unsafe.Pointer, error)

//go:linkname updateDurability github.com/nats-io/nats-server/v2/server.(*fileStore).updateDurabilitySettingsLocked
func updateDurability(store unsafe.Pointer, syncOnFlush bool)

//go:linkname syncBlocks github.com/nats-io/nats-server/v2/server.(*fileStore).syncBlocks
func syncBlocks(store unsafe.Pointer)

// stores knows where the server keeps the stores of its streams.
type stores struct {
	store              uintptr // of a stream
	mu, last, onFlush  uintptr // of a file store
	closed             uintptr
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
		if s := l.at(stream, nameOf(stream)); s.StreamStore != nil {
			list = append(list, s)
		}
	}
	return list
}

// named is the store of one stream, without a StreamStore if that is in memory.
func (l *stores) named(srv *server.Server, name string) (store, error) {
	stream, err := lookupStream(srv.GlobalAccount(), name)
	if err != nil {
		return store{}, err
	}
	return l.at(stream, name), nil
}

// Lacks reports that a stream holds no message under a subject. It looks into the server's index of subjects, in memory, as the stream's API does for whoever asks for its subjects,
// and needs no message for it. False says nothing: the stream has one, or that is not known, as of a server that is not alone, while it is restarted,
// or while a write has the lock of the stream, which lasts as long as the disk does.
func (s *Server) Lacks(stream, subject string) bool {
	srv, where := s.running(), s.stores()
	if srv == nil || where == nil {
		return false
	}
	st, err := where.named(srv, stream)
	if err != nil || st.StreamStore == nil {
		return false
	}
	mu := where.lock(st)
	if !mu.TryRLock() {
		return false
	}
	mu.RUnlock()
	held := st.SubjectsTotals(subject)[subject]
	return held == 0 && !where.ended(st) // what is closed is of a server that ends
}

func (l *stores) at(stream unsafe.Pointer, name string) store {
	s := store{StreamStore: *(*server.StreamStore)(unsafe.Add(stream, l.store)), name: name}
	if reflect.TypeOf(s.StreamStore) == nil || reflect.TypeOf(s.StreamStore).String() != fileStore {
		s.StreamStore = nil
	}
	return s
}

// relax makes a store that syncs each write sync when it is told to (FlushAllPending), as the server does it for streams with a Raft log and for atomic batches.
func (l *stores) relax(s store) {
	if l.relaxed(s) {
		return
	}
	mu := l.lock(s)
	mu.Lock()
	defer mu.Unlock()
	updateDurability(s.pointer(), true)
}

// tighten has the store sync each write again. What was written before is still to be synced.
func (l *stores) tighten(s store) {
	mu := l.lock(s)
	mu.Lock()
	defer mu.Unlock()
	updateDurability(s.pointer(), false)
}

// lock is the store's own.
func (l *stores) lock(s store) *sync.RWMutex {
	return (*sync.RWMutex)(unsafe.Add(s.pointer(), l.mu))
}

func (l *stores) relaxed(s store) bool {
	return (*atomic.Bool)(unsafe.Add(s.pointer(), l.onFlush)).Load()
}

// ended reports whether a store was closed: it syncs nothing any more, and says no word of it.
func (l *stores) ended(s store) bool {
	return (*atomic.Bool)(unsafe.Add(s.pointer(), l.closed)).Load()
}

func (s store) pointer() unsafe.Pointer { return reflect.ValueOf(s.StreamStore).UnsafePointer() }

// sync returns when everything is on disk that was written before. After an error the store takes no more writes, which its writers and [Server.Health] find out.
func (s store) sync() { syncBlocks(s.pointer()) }

// dirty reports whether the last block of a store has something that is not synced.
func (l *stores) dirty(s store) bool {
	return l.dirtyBy(s, func(mu *sync.RWMutex) bool { mu.RLock(); return true })
}

// mayBeDirty is dirty without waiting: of a store whose locks are held it is true.
func (l *stores) mayBeDirty(s store) bool { return l.dirtyBy(s, (*sync.RWMutex).TryRLock) }

func (l *stores) dirtyBy(s store, take func(*sync.RWMutex) bool) bool {
	mu := l.lock(s)
	if !take(mu) {
		return true
	}
	block := *(*unsafe.Pointer)(unsafe.Add(s.pointer(), l.last))
	mu.RUnlock()
	if block == nil {
		return false
	}
	if mu = (*sync.RWMutex)(unsafe.Add(block, l.blockMu)); !take(mu) {
		return true
	}
	defer mu.RUnlock()
	return *(*bool)(unsafe.Add(block, l.needsSync))
}

// finding finds fields by their names and types, and collects those that are missing.
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

// provenStores proves once in a process, with a throwaway server and stream, that this version of the server syncs on demand: what was written is marked as not synced, and is no
// longer so marked afterwards.
var provenStores = sync.OnceValues(func() (*stores, error) { return proven(false, proveStores) })

// provenRelaxed proves the same of a server that syncs each write, once its store is relaxed; and that it does sync each before.
var provenRelaxed = sync.OnceValues(func() (*stores, error) { return proven(true, proveRelaxed) })

func proven(syncAlways bool, prove func(*server.Server, func(string) error) (*stores, error)) (l *stores, err error) {
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
	srv, err := server.NewServer(&server.Options{
		ServerName: "sync", StoreDir: dir, JetStream: true, NoSigs: true, NoLog: true, DontListen: true, SyncAlways: syncAlways, SyncInterval: time.Hour, DisableJetStreamBanner: true,
	})
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
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "SYNC", Subjects: []string{"sync"}}); err != nil {
		return nil, fmt.Errorf("streams: cannot make a stream: %w", err)
	}
	return prove(srv, func(what string) error {
		if _, err := js.Publish(ctx, "sync", []byte(what)); err != nil {
			return fmt.Errorf("streams: cannot write to a stream: %w", err)
		}
		return nil
	})
}

func proveStores(srv *server.Server, write func(string) error) (*stores, error) {
	if err := write("what is synced"); err != nil {
		return nil, err
	}
	l, s, err := findStores(srv)
	if err != nil {
		return nil, err
	}
	if !l.dirty(s) {
		return nil, errors.New("streams: the server does not say what it has not synced")
	}
	if s.sync(); l.dirty(s) {
		return nil, errors.New("streams: the server does not sync when it is told to")
	}
	return l, nil
}

func proveRelaxed(srv *server.Server, write func(string) error) (*stores, error) {
	if err := write("what is synced at once"); err != nil {
		return nil, err
	}
	l, _, err := findStores(srv)
	if err != nil {
		return nil, err
	}
	s, err := l.named(srv, "SYNC")
	if err != nil || s.StreamStore == nil {
		return nil, errors.Join(errors.New("streams: the server's stream is not found by its name"), err)
	}
	if l.dirty(s) || l.relaxed(s) {
		return nil, errors.New("streams: the server does not sync each write")
	}
	l.relax(s)
	if err := write("what is synced when it is told to"); err != nil {
		return nil, err
	}
	if !l.relaxed(s) || !l.dirty(s) {
		return nil, errors.New("streams: the server syncs each write whatever it is told")
	}
	if err := s.FlushAllPending(); err != nil || l.dirty(s) || !l.relaxed(s) {
		return nil, errors.Join(errors.New("streams: the server does not sync when it is told to"), err)
	}
	if l.tighten(s); l.relaxed(s) {
		return nil, errors.New("streams: the server does not go back to syncing each write")
	}
	if err := write("what is synced at once again"); err != nil || l.dirty(s) {
		return nil, errors.Join(errors.New("streams: the server does not sync each write again"), err)
	}
	return l, nil
}

// findStores finds the one store of a server, and where things are in it.
func findStores(srv *server.Server) (*stores, store, error) {
	l, f := &stores{}, &finding{}
	account := f.field(reflect.TypeFor[server.Account](), "js", "*server.jsAccount")
	all := f.field(account.Type, "streams", "map[string]*server.stream")
	if f.missing != nil {
		return nil, store{}, f.missing
	}
	if l.store = f.field(all.Type.Elem(), "store", "server.StreamStore").Offset; f.missing != nil {
		return nil, store{}, f.missing
	}
	list := l.of(srv)
	if len(list) != 1 || list[0].name != "SYNC" {
		return nil, store{}, fmt.Errorf("streams: of the server's streams one is stored, and %d are found", len(list))
	}
	fs := reflect.TypeOf(list[0].StreamStore)
	last := f.field(fs, "lmb", "*server.msgBlock")
	l.mu, l.last, l.onFlush = f.field(fs, "mu", "sync.RWMutex").Offset, last.Offset, f.field(fs, "syncOnFlush", "atomic.Bool").Offset
	l.closed = f.field(fs, "closed", "atomic.Bool").Offset
	l.blockMu, l.needsSync = f.field(last.Type, "mu", "sync.RWMutex").Offset, f.field(last.Type, "needSync", "bool").Offset
	if totals := list[0].SubjectsTotals("sync"); f.missing == nil && totals["sync"] == 0 {
		f.missing = errors.New("streams: the server's store does not list what was written to it")
	}
	return l, list[0], f.missing
}
