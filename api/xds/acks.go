package xds

// What the streams of proxies ask for and have. go-control-plane calls wholeCalls and deltaCalls for each stream, request and
// response; asked subscribes to services (follow and leave in follow.go) and notes which contents a proxy has acknowledged, answered
// which were sent. confirm, called per service by keep, reports through Server.Acked up to which index all proxies have it.

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// streamID is unique in a server: both protocols count their streams from 1.
type streamID struct {
	delta bool
	n     int64
}

// stream is what one stream asks for and has.
type stream struct {
	node  string                       // id of the proxy, as it says
	names map[string]bool              // followed for it
	sent  map[string]map[string]string // by nonce: the contents sent, by name
	has   map[string]string            // acknowledged contents, by name
}

// wholeCalls are the callbacks of the state-of-the-world protocol.
type wholeCalls struct{ *feed }

func (c wholeCalls) OnStreamOpen(_ context.Context, n int64, _ string) error {
	c.open(streamID{n: n})
	return nil
}

func (c wholeCalls) OnStreamClosed(n int64, _ *corepb.Node) { c.closed(streamID{n: n}) }

func (c wholeCalls) OnStreamRequest(n int64, r *discoverypb.DiscoveryRequest) error {
	if r.GetTypeUrl() == resource.EndpointType {
		c.asked(streamID{n: n}, asking{node: r.GetNode().GetId(), nonce: r.GetResponseNonce(), bad: r.GetErrorDetail() != nil, why: r.GetErrorDetail().GetMessage(), all: true, add: r.GetResourceNames()})
	}
	return nil
}

func (c wholeCalls) OnStreamResponse(_ context.Context, n int64, _ *discoverypb.DiscoveryRequest, r *discoverypb.DiscoveryResponse) {
	c.answered(streamID{n: n}, r.GetNonce(), r.GetResources())
}

// deltaCalls are the callbacks of the delta protocol.
type deltaCalls struct{ *feed }

func (c deltaCalls) OnDeltaStreamOpen(_ context.Context, n int64, _ string) error {
	c.open(streamID{true, n})
	return nil
}

func (c deltaCalls) OnDeltaStreamClosed(n int64, _ *corepb.Node) { c.closed(streamID{true, n}) }

func (c deltaCalls) OnStreamDeltaRequest(n int64, r *discoverypb.DeltaDiscoveryRequest) error {
	if t := r.GetTypeUrl(); t == resource.EndpointType || t == "" {
		c.asked(streamID{true, n}, asking{
			node: r.GetNode().GetId(), nonce: r.GetResponseNonce(), bad: r.GetErrorDetail() != nil, why: r.GetErrorDetail().GetMessage(),
			add: r.GetResourceNamesSubscribe(), remove: r.GetResourceNamesUnsubscribe(),
		})
	}
	return nil
}

func (c deltaCalls) OnStreamDeltaResponse(n int64, _ *discoverypb.DeltaDiscoveryRequest, r *discoverypb.DeltaDiscoveryResponse) {
	var all []*anypb.Any
	for _, one := range r.GetResources() {
		all = append(all, one.GetResource())
	}
	c.answered(streamID{true, n}, r.GetNonce(), all)
}

func (f *feed) open(id streamID) {
	f.stats.streams.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.streams[id] = &stream{names: map[string]bool{}, sent: map[string]map[string]string{}, has: map[string]string{}}
}

// closed forgets a stream, and after ackLife what it had acknowledged: a proxy acts on that until another stream gives it more.
func (f *feed) closed(id streamID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.streams[id]
	if one == nil {
		return
	}
	delete(f.streams, id)
	f.stats.streams.Add(-1)
	time.AfterFunc(ackLife, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for name := range one.names {
			f.leave(name, one)
		}
	})
}

// Bounds of what is logged of a proxy.
const (
	maxNode   = 128
	maxReason = 512
)

// asking is what a request says.
type asking struct {
	node   string
	nonce  string
	bad    bool // a NACK
	why    string
	all    bool // add is everything that is wanted
	add    []string
	remove []string
}

func (f *feed) asked(id streamID, a asking) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.streams[id]
	if one == nil {
		return
	}
	if a.node != "" {
		one.node = a.node[:min(len(a.node), maxNode)]
	}
	f.subscribe(one, a)
	got, sent := one.sent[a.nonce]
	delete(one.sent, a.nonce)
	if a.bad {
		if sent {
			f.stats.rejected.Add(1)
			f.log.Warn("xDS: a proxy rejected a response and keeps its previous state", "node", one.node, "services", slices.Sorted(maps.Keys(got)), "error", a.why[:min(len(a.why), maxReason)])
		}
		got = nil
	}
	for name, content := range got {
		if one.names[name] {
			one.has[name] = content
			f.followed[name].stir()
		}
	}
}

// subscribe changes what a stream asks for. The lock is held.
func (f *feed) subscribe(one *stream, a asking) {
	wanted := map[string]bool{}
	for _, name := range a.add {
		wanted[name] = true
		if !one.names[name] && f.follow(name, one) {
			one.names[name] = true
		}
	}
	gone := a.remove
	if a.all {
		for name := range one.names {
			if !wanted[name] {
				gone = append(gone, name)
			}
		}
	}
	for _, name := range gone {
		if one.names[name] {
			delete(one.names, name)
			delete(one.has, name)
			f.leave(name, one)
		}
	}
}

// answered remembers what is being sent under a nonce.
func (f *feed) answered(id streamID, nonce string, all []*anypb.Any) {
	contents := map[string]string{}
	for _, raw := range all {
		var it endpointpb.ClusterLoadAssignment
		if proto.Unmarshal(raw.GetValue(), &it) == nil {
			contents[it.GetClusterName()] = string(raw.GetValue())
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if one := f.streams[id]; one != nil {
		one.sent[nonce] = contents
		if len(one.sent) > remembered {
			clear(one.sent) // a client that never acknowledges
		}
	}
}

// confirm reports what all proxies of this server have of a service: what the slowest of its streams has acknowledged, those
// that broke a while ago included. One that has acknowledged nothing yet may act on anything that another server sent it.
func (f *feed) confirm(it *followed, again bool) {
	if f.Acked == nil {
		return
	}
	f.mu.Lock()
	index, told := uint64(math.MaxUint64), it.told
	for _, one := range []*followed{f.followed[it.service+"."+it.namespace], f.followed[it.service]} {
		if one != nil && one.namespace == it.namespace {
			index = min(index, one.least())
		}
	}
	it.told = index
	f.mu.Unlock()
	if index != math.MaxUint64 && (again || index != told) {
		f.Acked(it.namespace, it.service, f.watcher, index)
	}
}

// least is the index up to which all streams act on a service under that name.
func (one *followed) least() uint64 {
	index := uint64(math.MaxUint64)
	for st := range one.streams {
		index = min(index, one.built[st.has[one.name]]) // 0: nothing, or something older than what is remembered
	}
	return index
}

// stir has acknowledgements reported, those of many proxies at once.
func (one *followed) stir() {
	select {
	case one.stirred <- struct{}{}:
	default:
	}
}
