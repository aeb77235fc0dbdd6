package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	restate "github.com/restatedev/sdk-go"
	"github.com/restatedev/sdk-go/server"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/internal/lockedbuffer"
)

// record is the state of one of Restate's objects.
type record struct {
	Version int               `json:"version"`
	Labels  map[string]string `json:"labels"`
}

type labelled struct {
	Labels map[string]string `json:"labels"`
}

// serveHandler serves a virtual object whose command label writes its state once, until ctx ends.
func serveHandler(ctx context.Context, address string) error {
	object := restate.NewObject("Service").
		Handler("label", restate.NewObjectHandler(func(ctx restate.ObjectContext, in labelled) (int, error) {
			r, err := restate.Get[record](ctx, "record")
			if err != nil {
				return 0, err
			}
			r = record{r.Version + 1, in.Labels}
			restate.Set(ctx, "record", r)
			return r.Version, nil
		})).
		Handler("version", restate.NewObjectSharedHandler(func(ctx restate.ObjectSharedContext, _ labelled) (int, error) {
			r, err := restate.Get[record](ctx, "record")
			return r.Version, err
		}))
	handler, err := server.NewRestate().WithLogger(slog.NewTextHandler(io.Discard, nil), false).Bind(object).Handler()
	if err != nil {
		return err
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // to be asked whether it is ready; Restate takes the other
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Addr: address, Handler: handler, Protocols: &protocols, ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return s.ListenAndServe()
}

// restateServer starts Restate with what it does by default, and the handler as a process of its own. With an error, the
// contender is what has to be ended.
func (o *options) restateServer(ctx context.Context) (*contender, error) {
	c := &contender{name: "restate", busy: 1, answered: make([]atomic.Int64, o.entities), before: make([]int, o.entities)}
	var addresses [4]string
	for i := range addresses {
		var err error
		if addresses[i], err = rig.Free(); err != nil {
			return c, err
		}
	}
	node, admin, handler := addresses[0], addresses[1], addresses[2]
	c.http = addresses[3]
	dir, err := os.MkdirTemp(o.dir, "restate")
	if err != nil {
		return c, err
	}
	s, err := rig.Start(&lockedbuffer.Buffer{}, []string{
		"RESTATE_LISTEN_MODE=tcp", "RESTATE_BIND_ADDRESS=" + node, "RESTATE_ADMIN__BIND_ADDRESS=" + admin,
		"RESTATE_INGRESS__BIND_ADDRESS=" + c.http, "RESTATE_DISABLE_TELEMETRY=true",
	}, o.restate, "--no-logo", "--node-name", "bench", "--base-dir", dir)
	if err != nil {
		return c, err
	}
	c.processes = append(c.processes, s)
	self, err := os.Executable()
	if err != nil {
		return c, err
	}
	h, err := rig.Start(&lockedbuffer.Buffer{}, nil, self, "-handler", handler)
	if err != nil {
		return c, err
	}
	c.processes = append(c.processes, h)
	if err := s.Ready(ctx, "http://"+admin+"/health"); err != nil {
		return c, err
	}
	if err := s.Ready(ctx, "http://"+c.http+"/restate/health"); err != nil {
		return c, err
	}
	if err := h.Ready(ctx, "http://"+handler+"/health"); err != nil {
		return c, err
	}
	w := &rig.Wire{Host: admin}
	defer w.Close()
	raw, err := json.Marshal(map[string]string{"uri": "http://" + handler})
	if err != nil {
		return c, err
	}
	if status, answer, err := w.Do(http.MethodPost, "/deployments", raw); err != nil {
		return c, err
	} else if status != http.StatusCreated {
		return c, fmt.Errorf("Restate does not take the handler: %d %s", status, answer)
	}
	c.label = func(w *rig.Wire, e, n int, _ string) error {
		_, err := called(w.Do(http.MethodPost, "/Service/"+key(e)+"/label", labelBody(n)))
		return err
	}
	c.stored = func(w *rig.Wire, e int) (int, error) {
		return called(w.Do(http.MethodPost, "/Service/"+key(e)+"/version", []byte("{}")))
	}
	return c, nil
}

// called reads the version from an answer.
func called(status int, answer []byte, err error) (int, error) {
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("Restate answers %d: %s", status, answer)
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(answer))
}
