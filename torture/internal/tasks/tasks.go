package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// Limits of the run, and how much there is to do.
const (
	atOnce       = 6
	elsewhere    = 2 // of the type that workers elsewhere do
	repositories = 8
	each         = 12
	backWithin   = 45 * time.Second // the task of a dead worker is with another one
)

const config = `tasks:
  programs:
    nap: {path: /bin/sleep, args: ["0.05"]}
`

// world is nodes, a worker, and the NATS server of all of them, each a process.
type world struct {
	*part.T
	nats    *rig.NATS // nil: the nodes have one each, in a cluster
	nodes   []*rig.Instar
	workers map[string]*rig.Process
	made    int // tasks
}

func (w *world) url() string {
	if w.nats == nil {
		return (&rig.Cluster{Instars: w.nodes}).URLs()
	}
	return w.nats.URL()
}

// Killed ends workers, nodes and NATS by kill -9 while tasks run.
func Killed(t *part.T) error {
	w, err := start(t)
	if err != nil {
		return err
	}
	if err := w.limit(); err != nil {
		return err
	}
	if err := w.queue("t"); err != nil {
		return err
	}
	kills, err := w.kill(t.Amount(8, 40))
	if err != nil {
		return err
	}
	began := time.Now()
	if err := w.completed(); err != nil {
		return err
	}
	t.Say("%v; everything was done %s after the last kill", kills, part.Since(began))
	if err := w.back(func() error { return nil }); err != nil {
		return err
	}
	return w.judge()
}

// completed waits until all repositories are.
func (w *world) completed() error {
	for r := range repositories {
		if err := w.comes(fmt.Sprintf("/v1/repositories/r%d", r), repository.Completed, 3*time.Minute); err != nil {
			return err
		}
	}
	return nil
}

// within holds a time against the one in which somebody else has the task of a dead worker.
func (w *world) within(took time.Duration) {
	if took > backWithin {
		w.Violations++
		w.Say("VIOLATED: that is more than %s", backWithin)
	}
}

func start(t *part.T) (*world, error) {
	w := &world{T: t, workers: map[string]*rig.Process{}}
	var err error
	if w.nats, err = rig.NewNATS(t.Dir+"-nats", "interval"); err != nil {
		return nil, err
	}
	t.OnEnd(func() {
		if w.nats.Process != nil {
			w.nats.Kill()
		}
		for _, p := range w.workers {
			p.Kill()
		}
	})
	if err := w.nats.Start(t.Ctx); err != nil {
		return nil, err
	}
	file, err := configured(t)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"one", "two"} {
		i, err := t.Instar(name, w.nats.URL(), "--durability", "interval", "--config", file, "--log-level", "warn")
		if err != nil {
			return nil, err
		}
		if err := i.Start(""); err != nil {
			return nil, err
		}
		if err := i.Alive(t.Ctx, time.Minute); err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, i)
	}
	if err := rig.Shared(t.Ctx, time.Minute, w.nodes); err != nil {
		return nil, err
	}
	return w, w.worker("first")
}

// configured is the file with the configuration of the nodes.
func configured(t *part.T) (file string, err error) {
	file = t.Dir + ".yaml"
	return file, os.WriteFile(file, []byte(config), 0o600)
}

func (w *world) worker(name string) (err error) {
	w.workers[name], err = rig.Self(w.Dir+"-worker.log", workerVerb, w.url(), name)
	return err
}

// post sends until it is answered: a node may be away. What is there already was made by an answer that got lost.
func (w *world) post(path, body string) error {
	return rig.Until(w.Ctx, time.Minute, "POST "+path, func() bool {
		for _, i := range w.nodes {
			resp, err := client.Post("http://"+i.HTTP+path, "application/json", bytes.NewReader([]byte(body)))
			if err != nil {
				continue
			}
			_, _ = io.Copy(io.Discard, resp.Body) // the status says enough
			_ = resp.Body.Close()
			if resp.StatusCode < 300 || resp.StatusCode == http.StatusConflict {
				return true
			}
		}
		return false
	})
}

var client = &http.Client{Timeout: 15 * time.Second}

// limit sets the limits, and makes the repositories.
func (w *world) limit() error {
	for path, body := range map[string]string{
		"/v1/queues/cluster/configure": fmt.Sprintf(`{"limit":%d}`, atOnce), "/v1/queues/type-away/configure": fmt.Sprintf(`{"limit":%d}`, elsewhere),
		"/v1/queues/pool-" + pool + "/configure": `{}`,
	} {
		if err := w.post(path, body); err != nil {
			return err
		}
	}
	for r := range repositories {
		if err := w.post(fmt.Sprintf("/v1/repositories/r%d/create", r), fmt.Sprintf(`{"concurrency":%d}`, concurrency(r))); err != nil {
			return err
		}
	}
	return nil
}

// queue queues some tasks in each repository, whose names begin alike.
func (w *world) queue(names string) error {
	for r := range repositories {
		for i := range each {
			w.made++
			body := `{"type":"exec","params":{"program":"nap"},"run":true,"attempts":50}`
			if i%2 == 1 {
				body = `{"type":"away","pool":"` + pool + `","run":true,"attempts":50}`
			}
			if err := w.post(fmt.Sprintf("/v1/repositories/r%d/tasks/%s%d/create", r, names, i), body); err != nil {
				return err
			}
		}
	}
	return nil
}

func concurrency(r int) int { return 1 + r%2 }

// kill kills one after another, and starts it again at once.
func (w *world) kill(n int) (kills map[string]int, err error) {
	kills = map[string]int{}
	for k := range n {
		if !wait.For(w.Ctx, w.Between(300*time.Millisecond, 1500*time.Millisecond)) {
			return kills, w.Ctx.Err()
		}
		switch k % 4 {
		case 0:
			kills["workers"]++
			w.workers["first"].Kill()
			err = w.worker("first")
		case 2:
			kills["NATS"]++
			w.nats.Kill()
			err = w.nats.Start(w.Ctx)
		default:
			kills["nodes"]++
			i := w.nodes[k/2%2]
			i.Kill()
			if err = i.Start(""); err == nil {
				err = i.Alive(w.Ctx, time.Minute)
			}
		}
		if err != nil {
			return kills, err
		}
	}
	return kills, nil
}

func (w *world) comes(path, state string, most time.Duration) error {
	last := ""
	err := rig.Until(w.Ctx, most, path+" is "+state, func() bool {
		for _, i := range w.nodes {
			var v struct {
				State string `json:"state"`
			}
			if get("http://"+i.HTTP+path, &v) == nil {
				last = v.State
				return v.State == state
			}
		}
		return false
	})
	if err != nil {
		err = fmt.Errorf("%w: it is %q", err, last)
	}
	return err
}

func get(url string, into any) error {
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// back kills the only worker that has a task, and does something else at that moment; another one has to have done the task soon.
func (w *world) back(also func() error) error {
	w.workers["first"].Kill()
	if err := w.worker(holder); err != nil {
		return err
	}
	if err := w.post("/v1/repositories/r0/tasks/held/create", `{"type":"hold","pool":"`+pool+`","run":true}`); err != nil {
		return err
	}
	if err := w.comes("/v1/repositories/r0/tasks/held", task.Running, time.Minute); err != nil {
		return err
	}
	r, err := w.Reader(w.url())
	if err != nil {
		return err
	}
	err = rig.Until(w.Ctx, time.Minute, "the worker has the task", func() bool {
		ctx, cancel := context.WithTimeout(w.Ctx, 2*time.Second)
		defer cancel()
		c, err := r.JS().Consumer(ctx, "EFFECTS", "fx-task-run="+pool)
		return err == nil && c.CachedInfo().NumAckPending == 1
	})
	if err != nil {
		return err
	}
	w.workers[holder].Kill()
	died := time.Now()
	if err := also(); err != nil {
		return err
	}
	if err := w.worker("second"); err != nil {
		return err
	}
	if err := w.comes("/v1/repositories/r0/tasks/held", task.Succeeded, 2*backWithin); err != nil {
		return err
	}
	w.made++
	w.Say("the task of a worker that was killed was done by another one after %s", part.Since(died))
	w.within(part.Since(died))
	return nil
}
