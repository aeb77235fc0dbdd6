package xds

import (
	"context"
	"regexp"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/bcc94042/instar/api/discovery"
)

// followed is a service that somebody asks for.
type followed struct {
	name      string
	namespace string
	service   string
	users     int
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

// follow counts one more user of a name; the first one puts the assignment into the cache before it returns. The lock
// is held.
func (f *feed) follow(name string) bool {
	if one, ok := f.followed[name]; ok {
		one.users++
		return true
	}
	namespace, service, ok := f.parse(name)
	if !ok || len(f.followed) >= maxFollowed || f.ctx.Err() != nil {
		return false
	}
	ctx, stop := context.WithCancel(f.ctx)
	one := &followed{name: name, namespace: namespace, service: service, users: 1, stop: stop, built: map[string]uint64{}}
	f.followed[name] = one
	changed := f.put(one, f.find(one))
	f.running.Go(func() { f.keep(ctx, one, changed) })
	return true
}

// leave counts one user less; after the last one the name is forgotten. The lock is held.
func (f *feed) leave(name string) {
	one, ok := f.followed[name]
	if !ok {
		return
	}
	if one.users--; one.users > 0 {
		return
	}
	one.stop()
	delete(f.followed, name)
	_ = f.cache.DeleteResource(name) // fails only where an assignment cannot be encoded, and then nothing is in it
}

// keep puts every change into the cache, and says again and again what has been acknowledged.
func (f *feed) keep(ctx context.Context, one *followed, after uint64) {
	again := time.NewTicker(repeatAcks)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.Finder.Watch(one.namespace, one.service, after):
		case <-again.C: // the index moves on although the service does not; weights may grow
		}
		result := f.find(one)
		f.mu.Lock()
		if f.followed[one.name] == one {
			after = f.put(one, result)
		}
		f.mu.Unlock()
		f.confirm(one.name)
	}
}

func (f *feed) find(one *followed) discovery.Result {
	return f.Finder.Find(discovery.Query{Namespace: one.namespace, Service: one.service, Draining: true})
}

// put makes the cache say what the catalog says, and returns the change that it holds. The lock is held.
func (f *feed) put(one *followed, result discovery.Result) uint64 {
	next := assignment(one.name, result.Endpoints)
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
