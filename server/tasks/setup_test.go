package tasks_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/tasks"
)

// running is a server with the machines of tasks.
type running struct {
	t    *testing.T
	url  string
	nats string
	stop func() error
}

type performs = func(context.Context, *server.Host) (effects.Performer, error)

// start runs a server in this process until the test ends, with what does its tasks: nil leaves all of them to workers elsewhere.
func start(t *testing.T, perform performs, set ...func(*config.Config)) *running {
	t.Helper()
	return startWith(t, func(*server.Options) {}, perform, set...)
}

// startWith runs one with other options.
func startWith(t *testing.T, with func(*server.Options), perform performs, set ...func(*config.Config)) *running {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := l.Addr().String()
	require.NoError(t, l.Close())
	r := &running{t: t, nats: "nats://" + at}
	serving, ended := make(chan struct{}), make(chan error, 1)
	cfg := config.Defaults(config.Dev)
	cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Log.Level = relative(t, t.TempDir()), "127.0.0.1:0", at, "error"
	for _, s := range set {
		s(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	o := server.Options{
		Machines: []*machines.Machine{repository.Machine, task.Machine, queue.Machine},
		Providers: map[string]server.Provider{
			task.Machine.Name: tasks.Provider(perform), repository.Machine.Name: tasks.RepositoryProvider(), queue.Machine.Name: tasks.QueueProvider(),
		},
		Open: func(_ context.Context, h *server.Host) error {
			h.Serving(func(_ context.Context, url string) error { r.url = url; close(serving); return nil })
			return nil
		},
	}
	with(&o)
	go func() { ended <- server.Run(ctx, cfg, o) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { require.NoError(t, r.stop()) })
	select {
	case <-serving:
	case err := <-ended:
		ended <- nil
		require.NoError(t, err)
	}
	return r
}

func (r *running) do(method, path, body string) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	require.NoError(r.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	return resp, string(text)
}

func (r *running) ok(method, path, body string) map[string]any {
	r.t.Helper()
	resp, text := r.do(method, path, body)
	require.Less(r.t, resp.StatusCode, 300, "%s %s: %s", method, path, text)
	var v map[string]any
	require.NoError(r.t, json.Unmarshal([]byte(text), &v), text)
	return v
}

// why asks until a node schedules: a server serves before one does.
func (r *running) why(id string) map[string]any {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		resp, _ := r.do("GET", "/v1/tasks/"+id+"/why", "")
		return resp.StatusCode != http.StatusServiceUnavailable
	}, 20*time.Second, 20*time.Millisecond)
	return r.ok("GET", "/v1/tasks/"+id+"/why", "")
}

func (r *running) refused(status int, method, path, body string) string {
	r.t.Helper()
	resp, text := r.do(method, path, body)
	require.Equal(r.t, status, resp.StatusCode, "%s %s: %s", method, path, text)
	return text
}

func (r *running) comes(path, state string) {
	r.t.Helper()
	last := ""
	defer func() {
		if r.t.Failed() {
			_, all := r.do("GET", "/v1/tasks", "")
			r.t.Log(last, all)
		}
	}()
	require.Eventually(r.t, func() bool {
		_, last = r.do("GET", path, "")
		var v struct {
			State string `json:"state"`
		}
		return json.Unmarshal([]byte(last), &v) == nil && v.State == state
	}, 2*time.Minute, 20*time.Millisecond, "%s becomes %s", path, state)
}

// events are the types of all events of an entity.
func (r *running) events(path string) []string {
	r.t.Helper()
	return r.eventsOf(path + "/events?limit=500")
}

func (r *running) eventsOf(path string) (types []string) {
	r.t.Helper()
	for _, e := range r.ok("GET", path, "")["items"].([]any) {
		types = append(types, e.(map[string]any)["type"].(string))
	}
	return types
}

// relative is the path from here, as a configuration may have it.
func relative(t *testing.T, dir string) string {
	here, err := os.Getwd()
	require.NoError(t, err)
	to, err := filepath.Rel(here, dir)
	require.NoError(t, err)
	return to
}
