package admin

// GET /v1/workers: what waits in the queues of effects is read from their consumers (queues); who takes it is what workers say of themselves, every few seconds, on instar.worker.<queue>. hear keeps
// the last word of each for a minute. Nothing of it is stored, so a node that has just begun knows a worker when it speaks the next time.

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/streams"
)

// Bounds of what workers say.
const (
	maxWorkers  = 4096 // of all queues; others are not listed
	maxWorkerID = 128  // characters of a name, a queue, an id
	workerLife  = time.Minute
)

// Worker is a program that says that it takes tasks of a queue, or answers requests.
type Worker struct {
	ID          string    `json:"id,omitempty" doc:"The id that it gives itself, the same in all of its queues"`
	Name        string    `json:"name"`
	Version     string    `json:"version,omitempty" doc:"Of the program, as it says"`
	Concurrency int       `json:"concurrency,omitempty" doc:"Tasks that it takes at once"`
	Running     int       `json:"running" doc:"Tasks that it had under way when it was heard"`
	Heard       time.Time `json:"heardAt" doc:"When it was heard last. It speaks every 5 s, and is forgotten after a minute"`
}

// WorkerQueue is where tasks of one kind wait for whoever performs them.
type WorkerQueue struct {
	Queue       string     `json:"queue" doc:"The consumer of the stream of effects; for what has no queue, as a provider elsewhere, the name that it gives itself"`
	Stream      string     `json:"stream,omitempty" doc:"The stream of effects; absent for what has no queue"`
	Machine     string     `json:"machine,omitempty"`
	Effect      string     `json:"effect,omitempty"`
	Pool        string     `json:"pool,omitempty" doc:"Tasks of a pool are for workers elsewhere; others are for the nodes, unless the effects of the machine are left to others"`
	Waiting     uint64     `json:"waiting" doc:"Tasks that were sent, and nobody has taken. Those of a pool are sent while somebody asks for them: what is queued until then is not counted here, but has the state queued in GET /v1/tasks"`
	Taken       int        `json:"taken" doc:"Tasks that were taken, and are not acknowledged"`
	Redelivered int        `json:"redelivered" doc:"Of those, how many were delivered before"`
	DeliveredN  uint64     `json:"delivered" doc:"Tasks that were handed out since the queue was made, those that came again too: of two answers the difference is a rate"`
	Asking      int        `json:"asking" doc:"Requests for tasks that wait: while there are some, somebody is there"`
	Delivered   *time.Time `json:"deliveredAt,omitempty" doc:"When a task was taken last"`
	Workers     []Worker   `json:"workers" nullable:"false" doc:"Those that say who they are, by name"`
}

// WorkerList are all queues, by name.
type WorkerList struct {
	Items []WorkerQueue `json:"items" nullable:"false"`
}

// presence is what was heard of workers.
type presence struct {
	names streams.Names
	mu    sync.Mutex
	heard map[[2]string]Worker // by queue and id
}

// hear takes the word of a worker about the queue of its subject: what a user may publish there is what it may say.
func (p *presence) hear(m *nats.Msg) {
	var w struct {
		ID, Queue, Name      string
		Version              string
		Concurrency, Running int
	}
	if len(m.Data) > 4096 || json.Unmarshal(m.Data, &w) != nil || w.Queue == "" || m.Subject != p.names.Worker(w.Queue) || max(len(w.Queue), len(w.ID), len(w.Name), len(w.Version)) > maxWorkerID {
		return
	}
	key := [2]string{w.Queue, w.ID}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.heard[key]
	if !known && len(p.heard) >= maxWorkers {
		p.forget()
	}
	if known || len(p.heard) < maxWorkers {
		p.heard[key] = Worker{ID: w.ID, Name: w.Name, Version: w.Version, Concurrency: max(w.Concurrency, 0), Running: max(w.Running, 0), Heard: time.Now().UTC()}
	}
}

// forget drops those that were not heard for a minute. p.mu is held.
func (p *presence) forget() {
	maps.DeleteFunc(p.heard, func(_ [2]string, w Worker) bool { return time.Since(w.Heard) > workerLife })
}

// queues are those that were heard within the last minute, by queue.
func (p *presence) queues() map[string][]Worker {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	all := map[string][]Worker{}
	for key, w := range p.heard {
		all[key[0]] = append(all[key[0]], w)
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b Worker) int { return cmp.Or(strings.Compare(a.Name, b.Name), a.Heard.Compare(b.Heard)) })
	}
	return all
}

func (s *Service) workerRoutes(r *rest.Router) []*rest.Route {
	if s.o.JS == nil {
		return nil
	}
	return []*rest.Route{{Role: auth.Read, Serve: s.listWorkers, Op: huma.Operation{
		OperationID: "list-workers", Method: http.MethodGet, Path: "/v1/workers", Tags: []string{"nodes"}, Summary: "List the queues of effects, and who takes from them",
		Description: "For who may see all namespaces. Workers of client/worker say who they are; of those that do not, only their requests are seen.", Errors: []int{503},
		Responses: map[string]*huma.Response{"200": {Description: "All queues", Content: r.BodyOf(reflect.TypeFor[WorkerList]())}},
	}}}
}

func (s *Service) listWorkers(q *rest.Request) error {
	if p := q.Who.OfAll("the workers"); p != nil {
		return p
	}
	out := WorkerList{Items: []WorkerQueue{}}
	if err := q.InTurn(func() (err error) {
		out.Items, err = s.queues(q.Context())
		return err
	}); err != nil {
		return err
	}
	workers := s.workers.queues()
	for i := range out.Items {
		it := &out.Items[i]
		it.Workers = append([]Worker{}, workers[it.Queue]...)
		delete(workers, it.Queue)
	}
	for queue, list := range workers {
		out.Items = append(out.Items, WorkerQueue{Queue: queue, Workers: list})
	}
	slices.SortFunc(out.Items, func(a, b WorkerQueue) int { return strings.Compare(a.Queue, b.Queue) })
	return q.JSON(http.StatusOK, out)
}

// queues are the consumers that effects of the machines are taken from.
func (s *Service) queues(ctx context.Context) ([]WorkerQueue, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stream, err := s.o.JS.Stream(ctx, s.store.Names.Stream(streams.EffectStream))
	if err != nil {
		return nil, err
	}
	known := map[string]WorkerQueue{}
	for _, m := range s.store.Machines.All() {
		for _, fx := range m.Effects {
			known[streams.WorkerName(m.Name, fx.Name)] = WorkerQueue{Machine: m.Name, Effect: fx.Name}
		}
	}
	all := []WorkerQueue{}
	list := stream.ListConsumers(ctx)
	for info := range list.Info() {
		name, pool, _ := strings.Cut(info.Name, "=")
		if it, ok := known[name]; ok {
			all = append(all, it.with(info, pool))
		}
	}
	return all, list.Err()
}

func (it WorkerQueue) with(info *jetstream.ConsumerInfo, pool string) WorkerQueue {
	it.Queue, it.Stream, it.Pool, it.Delivered, it.DeliveredN = info.Name, info.Stream, pool, info.Delivered.Last, info.Delivered.Consumer
	it.Waiting, it.Taken, it.Redelivered, it.Asking = info.NumPending, info.NumAckPending, info.NumRedelivered, info.NumWaiting
	return it
}
