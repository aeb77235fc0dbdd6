package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
)

type water struct {
	Liters int `json:"liters" minimum:"1" maximum:"9"`
}

// kettle is a machine with an effect, a timer and a view.
func kettle(name, plural string, change ...func(*machines.Definition[water])) *machines.Machine {
	d := machines.Definition[water]{
		Name: name, Plural: plural, Doc: "It boils water.",
		States: []machines.State[water]{
			{Name: "HEATING", Timeout: &machines.Timeout[water]{Input: "too-late", After: func(*water) time.Duration { return time.Minute }}},
			{Name: "HOT", Timeout: &machines.Timeout[water]{Input: "cooled", After: func(*water) time.Duration { return 200 * time.Millisecond }}},
			{Name: "COLD"},
			{Name: "BROKEN", Failed: true},
		},
		Inputs: []machines.Command{
			{Name: "fill", Doc: "Fill and heat it.", Body: water{}, Birth: true},
			{Name: "heat", Doc: "Heat it again."},
			{Name: "heated", Doc: "It boils.", Report: true},
			{Name: "heat-failed", Doc: "It does not.", Body: machines.Failure{}, Report: true},
			{Name: "too-late", Doc: "It did not boil in time.", Report: true},
			{Name: "cooled", Doc: "It is cold again.", Report: true},
		},
		Effects: []machines.Effect[water]{{Name: "heat", Doc: "Heat it.", Done: "heated", Failed: "heat-failed"}},
		Events:  []machines.EventType{{Name: name + ".cold", Class: machines.ClassState, Doc: "It is cold."}},
		Views: []machines.View{{Name: "times", Doc: "How often it was cold.", Events: []string{name + ".cold"}, Project: func(before json.RawMessage, _ string, _ machines.Event, _ json.RawMessage) (any, error) {
			n := 0
			if len(before) > 0 {
				if err := json.Unmarshal(before, &n); err != nil {
					return nil, err
				}
			}
			return n + 1, nil
		}}},
		Edges: []machines.Edge[water]{
			{From: []string{machines.None}, On: "fill", To: "HEATING", Effects: []string{"heat"}, Do: func(s *machines.Tx[water]) { *s.Data = *machines.Body[water](s) }},
			{From: []string{"COLD", "BROKEN"}, On: "heat", To: "HEATING", Effects: []string{"heat"}},
			{From: []string{"HEATING"}, On: "heated", To: "HOT"},
			{From: []string{"HEATING"}, On: "heat-failed", To: "BROKEN"},
			{From: []string{"HEATING"}, On: "too-late", To: "BROKEN"},
			{From: []string{"HOT"}, On: "cooled", To: "COLD", Emit: []string{name + ".cold"}},
		},
	}
	for _, c := range change {
		c(&d)
	}
	return machines.Define(d)
}

// door is a machine that has nothing but its table.
func door() *machines.Machine {
	return machines.Define(machines.Definition[struct{}]{
		Name: "door", Plural: "doors", Doc: "It is open or not.", States: []machines.State[struct{}]{{Name: "OPEN"}, {Name: "SHUT"}},
		Inputs: []machines.Command{{Name: "open", Doc: "Open it.", Birth: true}, {Name: "shut", Doc: "Shut it."}},
		Edges: []machines.Edge[struct{}]{
			{From: []string{machines.None, "SHUT"}, On: "open", To: "OPEN"}, {From: []string{"OPEN"}, On: "shut", To: "SHUT"},
		},
	})
}

type stove struct{}

func (stove) Perform(context.Context, machines.Task) machines.Result { return machines.Result{} }

// running is a server that an application has started with machines of its own.
type running struct {
	t    *testing.T
	host *server.Host
	url  string
	nc   *nats.Conn
	stop func() error
}

// start runs a server until it is stopped, or the test has ended.
func start(t *testing.T, dir string, o server.Options, change ...func(*config.Config)) *running {
	t.Helper()
	r := &running{t: t}
	serving := make(chan struct{})
	open := o.Open
	o.Open = func(ctx context.Context, h *server.Host) (err error) {
		r.host = h
		h.Serving(func(_ context.Context, url string) error { r.url = url; close(serving); return nil })
		if r.nc, _, err = h.Connect("test"); err == nil && open != nil {
			err = open(ctx, h)
		}
		return err
	}
	cfg := settings(dir)
	for _, c := range change {
		c(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
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

// settings are those of a server that only its process reaches over NATS.
func settings(dir string) config.Config {
	cfg := config.Defaults(config.Dev)
	cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Log.Level = dir, "127.0.0.1:0", "", "error"
	return cfg
}

// do asks over HTTP.
func (r *running) do(method, path, body string, headers ...string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, strings.NewReader(body))
	require.NoError(r.t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(r.t, err)
	return res.StatusCode, string(text)
}

// ok is the answer of a request that has to succeed.
func (r *running) ok(method, path, body string, headers ...string) string {
	r.t.Helper()
	code, text := r.do(method, path, body, headers...)
	require.Contains(r.t, []int{200, 202}, code, "%s %s: %s", method, path, text)
	return text
}

// comes waits until a path answers with a text.
func (r *running) comes(path, text string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { _, got := r.do("GET", path, ""); return strings.Contains(got, text) }, time.Minute, 10*time.Millisecond, path+" "+text)
}

// ask asks over NATS.
func (r *running) ask(subject, body string) string {
	r.t.Helper()
	m, err := r.nc.Request(subject, []byte(body), 10*time.Second)
	require.NoError(r.t, err)
	require.Empty(r.t, m.Header.Get(micro.ErrorCodeHeader), string(m.Data))
	return string(m.Data)
}

// watch reads events of a watch until one of a name, and returns its data and the last id.
func (r *running) watch(path, last string) (until func(name string) (data, id string)) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	r.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", r.url+path, nil)
	require.NoError(r.t, err)
	req.Header.Set("Last-Event-ID", last)
	res, err := http.DefaultClient.Do(req)
	require.NoError(r.t, err)
	require.Equal(r.t, 200, res.StatusCode)
	r.t.Cleanup(func() { _ = res.Body.Close() })
	lines, id := bufio.NewScanner(res.Body), ""
	lines.Buffer(nil, 1<<20)
	return func(name string) (string, string) {
		r.t.Helper()
		for event := ""; lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch field {
			case "event":
				event = value
			case "id":
				id = value
			case "data":
				if event == name {
					return value, id
				}
			}
		}
		require.FailNow(r.t, "the watch ended before "+name, lines.Err())
		return "", ""
	}
}
