// Package tasks serves machines/task, machines/repository and machines/queue: one node at a time schedules (consumers/orchestrator), every node refuses at its doors what would not fit
// (admit.go), and a performer that is given does what tasks say. Log lines and documents are kept in the stream and the bucket that open makes.
package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/rest"
	apitasks "github.com/bcc94042/instar/api/tasks"
	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/consumers/orchestrator"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/logs"
)

// Role is the name of the role that schedules.
const Role = "orchestrator"

// Provider serves machines/task. perform makes what does the tasks on this node; nil leaves all of them to workers elsewhere. Where that has a method Check, which says why it could do no task
// of a type with such parameters, tasks of the pool of the nodes that it refuses are not created.
func Provider(perform func(ctx context.Context, h *server.Host) (effects.Performer, error)) server.Provider {
	return server.Provider{
		Decoder: func() func(string, []byte) (any, error) { return orchestrator.TaskValue },
		Open:    func(ctx context.Context, h *server.Host) (server.Work, error) { return open(ctx, h, perform) },
	}
}

// RepositoryProvider serves machines/repository, which [Provider] follows.
func RepositoryProvider() server.Provider {
	return server.Provider{Decoder: func() func(string, []byte) (any, error) { return orchestrator.RepositoryValue }}
}

// QueueProvider serves machines/queue, which [Provider] follows.
func QueueProvider() server.Provider {
	return server.Provider{Decoder: func() func(string, []byte) (any, error) { return orchestrator.QueueValue }}
}

func open(ctx context.Context, h *server.Host, perform func(context.Context, *server.Host) (effects.Performer, error)) (server.Work, error) {
	_, js, err := h.Connect("tasks")
	if err != nil {
		return server.Work{}, err
	}
	if err := keep(ctx, h, js); err != nil { // as while a leader is away, or the disk is full: tasks can be looked at and queued
		h.Log.Warn("log lines and documents of tasks have no place yet; trying again", "error", err)
		h.Go(ctx, "the places of logs and documents", func(ctx context.Context) error {
			for try := 0; wait.Backoff(ctx, try); try++ {
				if keep(ctx, h, js) == nil {
					<-ctx.Done()
				}
			}
			return nil
		})
	}
	tasks, queues, repositories := h.Indexes.Get(task.Machine.Name), h.Indexes.Get(queue.Machine.Name), h.Indexes.Get(repository.Machine.Name)
	if tasks == nil || queues == nil || repositories == nil {
		return server.Work{}, errors.New("the machine task needs repository and queue")
	}
	d := &door{board: &orchestrator.Board{Tasks: tasks, Queues: queues, Repositories: repositories}, tasks: tasks, repositories: repositories, stored: stateOf(ctx, &h.Deps)}
	h.Go(ctx, "the counts of queued tasks", d.board.Run)
	m := newMeter()
	if err := h.Register(m); err != nil {
		return server.Work{}, err
	}
	why := func(ctx context.Context, key string) (string, string, error) {
		r, err := orchestrator.Why(ctx, &h.Deps, key)
		return r.State, r.Why, err
	}
	h.API(func(o *api.Options) {
		d.next, d.places, o.Admit, o.Place = o.Admit, o.Place, d.admit, d.place
		o.More = append(o.More, func(p api.Parts) func(*rest.Router) []*rest.Route {
			return apitasks.New(p.Rest, p.Store, p.Sender, js, why).Routes
		})
	})
	h.Role(ctx, Role, (&orchestrator.Orchestrator{Deps: h.Deps, Tasks: tasks, Repositories: repositories, Queues: queues, Elsewhere: perform == nil, Replicas: h.Replicas, Metrics: m, KeepEnded: h.Config.Tasks.Keep, CloneFor: h.Config.Tasks.Clone.Timeout, Room: func() (int, bool) { return room(h.Member.Nodes()) }}).Run)
	if perform == nil {
		return server.Work{Performer: effects.External, Routes: d.board.Pools}, nil
	}
	h.Member.Offer(offered, h.Config.Tasks.AtOnce())
	p, err := perform(ctx, h)
	if c, knows := p.(interface {
		Check(typ string, params json.RawMessage) error
	}); knows {
		d.check = c.Check
	}
	return server.Work{Performer: p, Routes: d.board.Pools, EachNode: map[string]int{task.EffectRun: h.Config.Tasks.AtOnce()}}, err
}

// offered is what a node says of how many tasks it does at a time.
const offered = "tasks"

// room is how many tasks the nodes do together. Of those that do not say it, as in earlier versions, the one that performs effects takes what there is; the others do none.
func room(nodes []cluster.NodeInfo) (sum int, known bool) {
	for _, n := range nodes {
		much, says := n.Offers[offered]
		if !says && slices.Contains(n.Roles, server.RoleGateway) {
			return 0, false
		}
		sum += much
	}
	return sum, len(nodes) > 0
}

// stateOf reads the state of an entity where it is stored.
func stateOf(ctx context.Context, d *consumers.Deps) func(*machines.Machine, string) (string, error) {
	return func(m *machines.Machine, key string) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		stored, err := d.Value(ctx, m, key)
		if err != nil || kv.Absent(stored) {
			return machines.None, err
		}
		e, err := m.Decode(stored.Data)
		return e.State, err
	}
}

// keep makes the stream of logs and the bucket of documents where they are not there: what is there is left alone, so that a server starts on a full disk.
func keep(ctx context.Context, h *server.Host, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	names, replicas := h.Deps.Names, max(h.Replicas, 1)
	err := logs.Ensure(ctx, js, names, replicas)
	if err != nil {
		return err
	}
	documents := names.Bucket(task.DocumentBucket)
	if _, err = js.ObjectStore(ctx, documents); errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: documents, Description: "Documents that tasks have written", Replicas: replicas})
	}
	if err != nil && !errors.Is(err, jetstream.ErrBucketExists) {
		return fmt.Errorf("cannot make the bucket of documents: %w", err)
	}
	return nil
}
