package xds

// The services that proxies ask for, from the catalog into the cache of go-control-plane. acks.go calls follow and leave as
// streams ask for a name. For each name keep waits for a change (Finder.Watch), an acknowledgement or the next repetition;
// renew finds the endpoints and puts them into the cache as an assignment (assign.go), which the library sends to the streams.

import (
	"context"
	"math"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/internal/panics"
)

// followed is a service that somebody asks for.
type followed struct {
	name      string
	namespace string
	service   string
	streams   map[*stream]struct{} // that ask for it, or did until they broke a while ago
	left      int                  // instances that are left out
	told      uint64               // index that was confirmed last
	stirred   chan struct{}
	stop      context.CancelFunc

	content string            // the assignment that is in the cache, as bytes
	index   uint64            // up to which the catalog says the same
	built   map[string]uint64 // of the last contents: the index up to which each was true
	order   []string          // of built, oldest first
}

// remembered are the versions of an assignment that a slow proxy may still acknowledge one by one.
const remembered = 16

var label = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// parse splits the name of a resource.
func (f *feed) parse(name string) (namespace, service string, ok bool) {
	service, namespace, two := strings.Cut(name, ".")
	if !two {
		if namespace = f.Namespace; namespace == "" {
			namespace = "default"
		}
	}
	return namespace, service, label.MatchString(service) && label.MatchString(namespace)
}

// follow is for one more stream that asks for a name; the first one puts the assignment into the cache before it returns.
// keep reports a new stream at once: nothing may count as acknowledged that it does not have. The lock is held.
func (f *feed) follow(name string, by *stream) bool {
	if one, ok := f.followed[name]; ok {
		one.streams[by] = struct{}{}
		one.stir()
		return true
	}
	namespace, service, ok := f.parse(name)
	if !ok || len(f.followed) >= maxFollowed || f.ctx.Err() != nil {
		return false
	}
	one := &followed{
		name: name, namespace: namespace, service: service, built: map[string]uint64{},
		streams: map[*stream]struct{}{by: {}}, stirred: make(chan struct{}, 1), told: math.MaxUint64,
	}
	one.stir()
	changed := f.put(one, f.find(one)) // before it is among those that are followed: this may panic
	ctx, stop := context.WithCancel(f.ctx)
	one.stop = stop
	f.followed[name] = one
	f.running.Go(func() { f.keep(ctx, one, changed) })
	return true
}

// leave is for a stream that does not ask for a name any more; after the last one the name is forgotten. The lock is held.
func (f *feed) leave(name string, by *stream) {
	one, ok := f.followed[name]
	if !ok {
		return
	}
	if delete(one.streams, by); len(one.streams) > 0 {
		return
	}
	one.stop()
	f.leftOut(one, 0)
	delete(f.followed, name)
	_ = f.cache.DeleteResource(name) // fails only where an assignment cannot be encoded, and then nothing is in it
}

// keep puts every change into the cache, and reports again and again what has been acknowledged.
func (f *feed) keep(ctx context.Context, one *followed, after uint64) {
	again := time.NewTicker(repeatAcks)
	defer again.Stop()
	for {
		repeat := false
		select {
		case <-ctx.Done():
			return
		case <-f.Finder.Watch(one.namespace, one.service, after):
		case <-one.stirred:
			f.confirm(one, false)
			continue
		case <-again.C: // the index moves on although the service does not; weights may grow
			repeat = true
		}
		after = f.renew(one, after)
		f.confirm(one, repeat)
	}
}

// renew puts what is found now into the cache, and returns the change that it holds.
func (f *feed) renew(one *followed, before uint64) (after uint64) {
	defer panics.Recover(f.log, "xds", "namespace", one.namespace, "service", one.service)
	after = math.MaxUint64 // after a panic the next attempt is that of the next repetition
	result := f.find(one)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followed[one.name] != one {
		return before
	}
	return f.put(one, result)
}

func (f *feed) find(one *followed) discovery.Result {
	return f.Finder.Find(discovery.Query{Namespace: one.namespace, Service: one.service, Draining: true})
}

// leftOut counts the instances of a service that proxies are not given. The lock is held.
func (f *feed) leftOut(one *followed, left int) {
	if left == one.left {
		return
	}
	if f.stats.leftOut.Add(int64(left - one.left)); left > 0 {
		f.log.Warn("xDS: instances without an IP address are left out", "namespace", one.namespace, "service", one.service, "instances", left)
	}
	one.left = left
}

// put makes the cache say what the catalog says, and returns the change that it holds. The lock is held.
func (f *feed) put(one *followed, result discovery.Result) uint64 {
	next, left := assignment(one.name, result.Endpoints)
	f.leftOut(one, left)
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(next)
	if err != nil { // text that is not UTF-8: the old assignment stays
		return result.Changed
	}
	content := string(raw)
	fresh := len(one.order) == 0 || content != one.content
	if _, ok := one.built[content]; !ok {
		one.order = append(one.order, content)
		if len(one.order) > remembered {
			delete(one.built, one.order[0])
			one.order = one.order[1:]
		}
	}
	one.content, one.index, one.built[content] = content, result.Index, result.Index
	if fresh {
		_ = f.cache.UpdateResource(one.name, next) // it was encoded a moment ago
	}
	return result.Changed
}
