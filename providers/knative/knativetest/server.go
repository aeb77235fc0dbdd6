package knativetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Object is a Knative Service, or a Secret, as JSON has it.
type Object = map[string]any

// Server is a cluster. Its zero value is an empty one.
type Server struct {
	// Run, where set, has the pod of a Knative Service run with the data of its Secret (as JSON has it) by name, and tells what becomes of its revision, in place of what images say:
	// the URL under which it answers, or why it does not; neither while it starts. End ends it.
	Run func(o Object, data Object) (url, failure string)
	End func(o Object)

	mu         sync.Mutex
	objects    map[string]*stored
	controller Controller
	log        []event
	version    int64 // resource version of the last write
	expired    int64 // watches from before it are refused
	born       int
	fail       func(r *http.Request) *Failure
	watchers   map[chan struct{}]chan struct{} // what wakes a watch, and what cuts it
	calls      []string
	secrets    *Server // the other kind of objects that there is
}

// Secrets are those of the cluster, which know no watch of their own.
func (s *Server) Secrets() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept()
}

func (s *Server) kept() *Server {
	if s.secrets == nil {
		s.secrets = &Server{}
	}
	return s.secrets
}

// Names are those of all objects, as namespace/name.
func (s *Server) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys("", "")
}

// stored is an object with what was last applied to it, which an apply takes away again.
type stored struct {
	object  Object
	applied Object
}

type event struct {
	version int64
	kind    string
	key     string
	raw     json.RawMessage
}

// Failure is what the server answers instead.
type Failure struct {
	Code       int
	Reason     string // of the status object; without one the body is plain text
	Message    string
	RetryAfter int           // seconds
	Hang       time.Duration // before the answer; it ends with the request, too
	Details    Object
}

// Fail decides for each request whether it fails; nil lets all through.
func (s *Server) Fail(f func(r *http.Request) *Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = f
}

// Calls lists the methods and paths of the requests so far, and forgets them.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// Get is a copy of an object, or nil.
func (s *Server) Get(namespace, name string) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[namespace+"/"+name]; o != nil {
		return clone(o.object)
	}
	return nil
}

// Put makes an object as others would, whole.
func (s *Server) Put(namespace, name string, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	meta := child(o, "metadata")
	meta["namespace"], meta["name"] = namespace, name
	s.create(namespace+"/"+name, &stored{object: o})
}

// Edit changes an object behind everybody's back. It panics when there is none.
func (s *Server) Edit(namespace, name string, f func(o Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := namespace + "/" + name
	before := s.objects[key]
	after := clone(before.object)
	f(after)
	s.update(key, before, after)
}

// SetStatus is [Server.Edit] of the status.
func (s *Server) SetStatus(namespace, name string, status Object) {
	s.Edit(namespace, name, func(o Object) { o["status"] = clone(status) })
}

// Remove takes an object away at once.
func (s *Server) Remove(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(namespace + "/" + name)
}

// Expire forgets all events so far: a watch that wants them has to list again.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.expired, s.log = s.version, nil
}

// CutWatches ends the watches under way, and returns how many there were.
func (s *Server) CutWatches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.watchers)
	for wake, cut := range s.watchers {
		close(cut)
		delete(s.watchers, wake)
	}
	return n
}

// create, update and remove write; the lock is held.
func (s *Server) create(key string, o *stored) {
	if s.objects == nil {
		s.objects = map[string]*stored{}
	}
	s.born++
	o.object = clone(o.object)
	meta := child(o.object, "metadata")
	meta["uid"], meta["generation"] = fmt.Sprintf("uid-%d", s.born), 1.0
	meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	if o.object["kind"] == nil {
		o.object["apiVersion"], o.object["kind"] = "serving.knative.dev/v1", "Service"
	}
	s.objects[key] = o
	s.record("ADDED", key, o.object)
}

// update raises the generation when the specification has changed. What changes nothing is not written.
func (s *Server) update(key string, before *stored, after Object) {
	after = clone(after)
	if reflect.DeepEqual(before.object, after) {
		return
	}
	if !reflect.DeepEqual(before.object["spec"], after["spec"]) {
		meta := child(after, "metadata")
		meta["generation"] = number(meta["generation"]) + 1
	}
	before.object = after
	s.record("MODIFIED", key, after)
}

func (s *Server) remove(key string) {
	o := s.objects[key]
	if o == nil {
		return
	}
	if s.End != nil {
		s.End(clone(o.object))
	}
	if s.secrets != nil {
		s.secrets.collect(child(o.object, "metadata")["uid"])
	}
	delete(s.objects, key)
	s.record("DELETED", key, o.object)
}

// collect removes what goes with an object.
func (s *Server) collect(uid any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range s.keys("", "") {
		owners, _ := child(s.objects[key].object, "metadata")["ownerReferences"].([]any)
		for _, r := range owners {
			if r, ok := r.(Object); ok && r["uid"] == uid {
				s.remove(key)
			}
		}
	}
}

func (s *Server) record(kind, key string, o Object) {
	s.version = max(s.version, 100) + 1
	child(o, "metadata")["resourceVersion"] = strconv.FormatInt(s.version, 10)
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	s.log = append(s.log, event{s.version, kind, key, raw})
	for wake := range s.watchers {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// keys of a namespace, or of all when it is empty, that have the label. The lock is held.
func (s *Server) keys(namespace, selector string) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		if selected(key, s.objects[key].object, namespace, selector) {
			keys = append(keys, key)
		}
	}
	return keys
}

// selected understands selectors of one label and value.
func selected(key string, o Object, namespace, selector string) bool {
	if namespace != "" && !strings.HasPrefix(key, namespace+"/") {
		return false
	}
	name, value, _ := strings.Cut(selector, "=")
	labels, _ := child(o, "metadata")["labels"].(Object)
	return selector == "" || labels[name] == value
}

// child is the object under a name, made when it is absent.
func child(o Object, name string) Object {
	c, ok := o[name].(Object)
	if !ok {
		c = Object{}
		o[name] = c
	}
	return c
}

// clone goes through JSON, so that numbers are of one type.
func clone(o Object) Object {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	var c Object
	if err := json.Unmarshal(raw, &c); err != nil {
		panic(err)
	}
	return c
}

// number is one as JSON has it; 0 when it is absent.
func number(v any) float64 {
	n, _ := v.(float64)
	return n
}
