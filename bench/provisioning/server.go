package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/providers/database/secret"
)

// instar is the program, moving tenants out of one shared database; databases of its own are on the same cluster.
type instar struct {
	b          *bench
	dir        string
	http, nats string
	process    *rig.Process
}

// instar starts one with a directory of its own.
func (b *bench) instar(ctx context.Context, source pg.Address) (s *instar, err error) {
	s = &instar{b: b}
	if s.dir, err = os.MkdirTemp(b.dir, "instar"); err != nil {
		return nil, err
	}
	for _, to := range []*string{&s.http, &s.nats} {
		if *to, err = rig.Free(); err != nil {
			return nil, err
		}
	}
	tenants := map[string]any{
		"source": map[string]any{"dsn": source.DSN}, "servers": []map[string]any{{"name": "own", "dsn": b.cluster.DSN("postgres")}},
		"keys": filepath.Join(s.dir, "keys.json"), "migrations": filepath.Join(s.dir, "migrations"),
	}
	raw, err := json.Marshal(map[string]any{"tenants": tenants}) // JSON is YAML
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(s.dir, "migrations"), 0o700); err != nil {
		return nil, err
	}
	keys, err := secret.NewKeyset()
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"keys.json": string(keys), "instar.yaml": string(raw), "migrations/00001_all.sql": schema} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return s, s.start(ctx)
}

// start starts it with what the directory has.
func (s *instar) start(ctx context.Context) (err error) {
	s.process, err = rig.Start(&lockedbuffer.Buffer{}, nil, s.b.binary, "serve", "--config", filepath.Join(s.dir, "instar.yaml"), "--data", filepath.Join(s.dir, "data"),
		"--http", s.http, "--nats", s.nats, "--gateway", "simulated", "--insecure")
	if err != nil {
		return err
	}
	return s.process.Ready(ctx, "http://"+s.http+"/readyz")
}

// session is what is read of one.
type session struct {
	State     string            `json:"state"`
	Data      database.Data     `json:"data"`
	LastError *machines.Failure `json:"lastError"`
}

func (s *instar) do(method, tenant, rest string, body, to any) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return err
		}
	}
	w := &rig.Wire{Host: s.http}
	defer w.Close()
	status, answer, err := w.Do(method, "/v1/tenants/"+tenant+"/database_provisionings/move"+rest, raw)
	if err != nil {
		return err
	}
	if status >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s%s was answered %d: %s", method, tenant, rest, status, answer)
	}
	if to == nil {
		return nil
	}
	return json.Unmarshal(answer, to)
}

func (s *instar) request(tenant, mode string) error {
	return s.do(http.MethodPost, tenant, "/request", map[string]string{"mode": mode}, nil)
}

// ready waits for the end of a move; looks is how often it looks, and seen what it sees.
func (s *instar) ready(ctx context.Context, tenant string, looks time.Duration, seen func(*session)) error {
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for {
		var v session
		if err := s.do(http.MethodGet, tenant, "", nil, &v); err != nil {
			return err
		}
		if seen != nil {
			seen(&v)
		}
		switch v.State {
		case database.Ready:
			return nil
		case database.Failed, database.Cancelled, database.RolledBack:
			return fmt.Errorf("the move of %s is %s: %v", tenant, v.State, v.LastError)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the move of %s is %s: %w", tenant, v.State, ctx.Err())
		}
	}
}

// own is the address of a tenant's own database.
func (b *bench) own(tenant string) pg.Address {
	return pg.Address{DSN: b.cluster.DSN("postgres"), Database: "tenant_" + tenant}
}
