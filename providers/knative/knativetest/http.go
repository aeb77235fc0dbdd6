package knativetest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// prefix and corePrefix are those of all paths that there are.
const (
	prefix     = "/apis/serving.knative.dev/v1/"
	corePrefix = "/api/v1/"
)

// ServeHTTP is the API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.calls = append(s.calls, r.Method+" "+r.URL.Path)
	fail := s.fail
	s.mu.Unlock()
	if fail != nil {
		if f := fail(r); f != nil {
			f.answer(w, r)
			return
		}
	}
	if rest, ok := strings.CutPrefix(r.URL.Path, corePrefix); ok {
		s.Secrets().serve(w, r, rest, "secrets")
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, prefix)
	if !ok {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	s.serve(w, r, rest, "services")
}

// serve answers for the objects of one kind.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, rest, plural string) {
	namespace := ""
	if after, found := strings.CutPrefix(rest, "namespaces/"); found {
		namespace, rest, _ = strings.Cut(after, "/")
	}
	name, one := strings.CutPrefix(rest, plural+"/")
	switch {
	case !one && rest != plural:
		http.Error(w, "404 page not found", http.StatusNotFound)
	case one && r.Method == http.MethodGet:
		s.get(w, namespace, name)
	case one && r.Method == http.MethodPatch:
		s.patch(w, r, namespace, name)
	case one && r.Method == http.MethodDelete:
		s.delete(w, r, namespace, name)
	case !one && r.Method == http.MethodGet && r.URL.Query().Get("watch") == "true":
		s.watch(w, r, namespace)
	case !one && r.Method == http.MethodGet:
		s.list(w, r, namespace)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed", "the server does not allow this method on the requested resource", nil)
	}
}

func (f *Failure) answer(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(f.Hang):
	case <-r.Context().Done():
		return
	}
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	if f.Reason == "" {
		http.Error(w, f.Message, f.Code)
		return
	}
	refuse(w, f.Code, f.Reason, f.Message, f.Details)
}

func write(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client has gone otherwise
}

func refuse(w http.ResponseWriter, code int, reason, message string, details Object) {
	write(w, code, status(code, reason, message, details))
}

func status(code int, reason, message string, details Object) Object {
	return Object{"kind": "Status", "apiVersion": "v1", "metadata": Object{}, "status": "Failure", "code": code, "reason": reason, "message": message, "details": details}
}

func about(name string) Object {
	return Object{"name": name, "group": "serving.knative.dev", "kind": "services"}
}

func missing(w http.ResponseWriter, name string) {
	refuse(w, http.StatusNotFound, "NotFound", fmt.Sprintf("services.serving.knative.dev %q not found", name), about(name))
}

func conflict(w http.ResponseWriter, name, why string) {
	refuse(w, http.StatusConflict, "Conflict", fmt.Sprintf("Operation cannot be fulfilled on services.serving.knative.dev %q: %s", name, why), about(name))
}

func (s *Server) get(w http.ResponseWriter, namespace, name string) {
	if o := s.Get(namespace, name); o != nil {
		write(w, http.StatusOK, o)
		return
	}
	missing(w, name)
}

// patch is server-side apply, by force, of the one manager that there is.
func (s *Server) patch(w http.ResponseWriter, r *http.Request, namespace, name string) {
	var wanted Object
	q := r.URL.Query()
	raw, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(raw, &wanted)
	}
	if err != nil || r.Header.Get("Content-Type") != "application/apply-patch+yaml" || q.Get("fieldManager") == "" || q.Get("force") != "true" {
		refuse(w, http.StatusBadRequest, "BadRequest", "only a server-side apply by force of JSON is played here", nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := namespace + "/" + name
	live := s.objects[key]
	if why := precondition(child(wanted, "metadata"), live); why != "" {
		conflict(w, name, why)
		return
	}
	for _, field := range []string{"uid", "resourceVersion"} {
		delete(child(wanted, "metadata"), field)
	}
	if live == nil {
		live = &stored{object: wanted, applied: clone(wanted)}
		s.create(key, live)
		write(w, http.StatusCreated, live.object)
		return
	}
	after := clone(live.object)
	withdraw(after, live.applied, wanted)
	overlay(after, clone(wanted))
	live.applied = wanted
	s.update(key, live, after)
	write(w, http.StatusOK, live.object)
}

// precondition is why an object is not the one that a writer means.
func precondition(meta Object, live *stored) string {
	uid, version := meta["uid"], meta["resourceVersion"]
	if live == nil {
		if uid != nil {
			return fmt.Sprintf("uid mismatch: the provided object specified uid %v, and no existing object was found", uid)
		}
		return ""
	}
	is := child(live.object, "metadata")
	switch {
	case uid != nil && uid != is["uid"]:
		return fmt.Sprintf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, is["uid"])
	case version != nil && version != is["resourceVersion"]:
		return "the object has been modified; please apply your changes to the latest version and try again"
	}
	return ""
}

// withdraw takes away what was applied and is no longer wanted.
func withdraw(from, applied, wanted Object) {
	for name, v := range applied {
		w, ok := wanted[name]
		sub, isObject := v.(Object)
		switch {
		case !ok:
			delete(from, name)
		case isObject:
			if f, ok := from[name].(Object); ok {
				w, _ := w.(Object)
				withdraw(f, sub, w)
			}
		}
	}
}

// overlay sets all that is wanted.
func overlay(on, wanted Object) {
	for name, v := range wanted {
		if sub, ok := v.(Object); ok {
			overlay(child(on, name), sub)
			continue
		}
		on[name] = v
	}
}

// delete ends an object: at once in the background, otherwise when the controller has taken away what belongs to it.
func (s *Server) delete(w http.ResponseWriter, r *http.Request, namespace, name string) {
	var options struct {
		Preconditions     Object
		PropagationPolicy string
	}
	if err := json.NewDecoder(r.Body).Decode(&options); err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error(), nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := namespace + "/" + name
	live := s.objects[key]
	if live == nil {
		missing(w, name)
		return
	}
	if why := precondition(options.Preconditions, live); why != "" {
		conflict(w, name, why)
		return
	}
	if options.PropagationPolicy != "Foreground" {
		s.remove(key)
		write(w, http.StatusOK, Object{"kind": "Status", "apiVersion": "v1", "status": "Success"})
		return
	}
	after := clone(live.object)
	meta := child(after, "metadata")
	if meta["deletionTimestamp"] == nil {
		meta["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		meta["finalizers"] = []any{"foregroundDeletion"}
		meta["generation"] = number(meta["generation"]) + 1
	}
	s.update(key, live, after)
	write(w, http.StatusOK, live.object)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []Object{}
	for _, key := range s.keys(namespace, r.URL.Query().Get("labelSelector")) {
		items = append(items, s.objects[key].object)
	}
	write(w, http.StatusOK, Object{
		"kind": "ServiceList", "apiVersion": "serving.knative.dev/v1", "items": items, "metadata": Object{"resourceVersion": strconv.FormatInt(s.version, 10)},
	})
}
