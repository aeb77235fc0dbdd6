package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/bench/internal/rig"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
)

// instarTasks is the program with its own NATS server.
type instarTasks struct {
	o                  *options
	binary, durability string
	dir, http, nats    string
	server, taskWorker *rig.Process
	nc                 *nats.Conn
	js                 jetstream.JetStream
}

// instar starts the program, with repositories in which so many tasks may run as workers are there, and a worker.
func (o *options) instar(ctx context.Context, binary, durability string) (contender, error) {
	c, err := o.instarAlone(ctx, binary, durability)
	if c == nil {
		return nil, err
	}
	if err == nil {
		c.taskWorker, err = startWorker("nats://"+c.nats, c.o.workers)
	}
	return c, err
}

func (o *options) instarAlone(ctx context.Context, binary, durability string) (c *instarTasks, err error) {
	c = &instarTasks{o: o, binary: binary, durability: durability}
	if c.dir, err = os.MkdirTemp(o.dir, "instar"); err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return c, err
	}
	if err := c.configure(o.workers); err != nil {
		return c, err
	}
	for r := range o.repositories {
		if err := c.post(fmt.Sprintf("/v1/repositories/r%d/create", r), repository.CreateBody{Spec: repository.Spec{Concurrency: max(2*o.workers/o.repositories, 1)}}); err != nil {
			return c, err
		}
	}
	return c, nil
}

// start starts the server, and returns when it is ready.
func (c *instarTasks) start(ctx context.Context) (err error) {
	for _, to := range []*string{&c.http, &c.nats} {
		if *to, err = rig.Free(); err != nil {
			return err
		}
	}
	c.server, err = rig.Start(&lockedbuffer.Buffer{}, nil, c.binary, "serve", "--data", c.dir, "--http", c.http, "--nats", c.nats, "--durability", c.durability,
		"--gateway", "simulated", "--insecure", "--effect-concurrency", fmt.Sprint(c.o.workers))
	if err != nil {
		return err
	}
	if err := c.server.Ready(ctx, "http://"+c.http+"/readyz"); err != nil {
		return err
	}
	if c.nc, err = nats.Connect("nats://" + c.nats); err != nil {
		return err
	}
	c.js, err = jetstream.New(c.nc, jetstream.WithPublishAsyncMaxPending(4096))
	return err
}

// configure sets how many tasks run at a time.
func (c *instarTasks) configure(limit int) error {
	return c.post("/v1/queues/cluster/configure", queue.ConfigureBody{Settings: queue.Settings{Limit: limit}})
}

func (c *instarTasks) post(path string, body any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w := &rig.Wire{Host: c.http}
	defer w.Close()
	status, answer, err := w.Do(http.MethodPost, path, raw)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s was answered %d: %s", path, status, answer)
	}
	return err
}

func (c *instarTasks) enqueue(ctx context.Context, first, n int, at time.Time) error {
	params, err := json.Marshal(args{At: at})
	if err != nil {
		return err
	}
	body, err := json.Marshal(task.CreateBody{Spec: task.Spec{Type: "noop", Pool: pool, Params: params}, Run: true})
	if err != nil {
		return err
	}
	if n == 1 {
		m, err := c.nc.RequestWithContext(ctx, streams.Names{}.API("cmd", task.Machine.Name, c.key(first), task.CommandCreate), body)
		if err != nil {
			return err
		}
		return applied(m.Data)
	}
	acks := make([]jetstream.PubAckFuture, 0, n)
	for i := first; i < first+n; i++ {
		m := &nats.Msg{Subject: streams.Names{}.Command(task.Machine.Name, c.key(i), task.CommandCreate), Data: body, Header: nats.Header{streams.HeaderID: {streams.CommandID(task.Machine.Name, c.key(i), streams.MadeUpID(rand.Text()))}}}
		f, err := c.js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute))
		if err != nil {
			return err
		}
		acks = append(acks, f)
	}
	for _, f := range acks {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (c *instarTasks) key(i int) string {
	return fmt.Sprintf("default.r%d.t%d", i%c.o.repositories, i)
}

func applied(answer []byte) error {
	var a struct {
		Outcome string `json:"outcome"`
	}
	if err := json.Unmarshal(answer, &a); err != nil || a.Outcome != "applied" {
		return fmt.Errorf("not applied: %s", answer)
	}
	return nil
}

func (c *instarTasks) done(context.Context) (int, error) { return c.count(task.Succeeded) }

func (c *instarTasks) count(state string) (int, error) {
	w := &rig.Wire{Host: c.http}
	defer w.Close()
	status, answer, err := w.Do(http.MethodGet, "/v1/machines/task/counts", nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the counts were answered %d: %s", status, answer)
	}
	if err != nil {
		return 0, err
	}
	var counts struct {
		States map[string]int `json:"states"`
	}
	err = json.Unmarshal(answer, &counts)
	return counts.States[state], err
}

// check counts events: each task was started and has succeeded once.
func (c *instarTasks) check(ctx context.Context, jobs int) error {
	for _, event := range []string{task.EventCreated, task.EventStarted, task.EventSucceeded} {
		n := 0
		err := until(ctx, func() (bool, error) { // they follow what is stored
			s, err := c.js.Stream(ctx, streams.Names{}.Stream(streams.EventStream))
			if err != nil {
				return false, err
			}
			info, err := s.Info(ctx, jetstream.WithSubjectFilter("instar.evt.task.*.*.*."+event))
			if err != nil {
				return false, err
			}
			n = 0
			for _, has := range info.State.Subjects {
				n += int(has)
			}
			return n >= jobs, nil
		})
		if err == nil && n != jobs {
			err = fmt.Errorf("%d tasks have %d events %s", jobs, n, event)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *instarTasks) processes() (server, worker *rig.Process) { return c.server, c.taskWorker }
func (c *instarTasks) database() int                            { return 0 }

func (c *instarTasks) close() {
	if c.nc != nil {
		c.nc.Close()
	}
	for _, p := range []*rig.Process{c.taskWorker, c.server} {
		if p != nil {
			p.Kill()
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		fmt.Println(err)
	}
}
