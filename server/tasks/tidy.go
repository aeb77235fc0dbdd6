package tasks

// What is removed when nobody needs it any more: keepDocuments has the bucket of documents followed on every node, and looked through on one, and tidy looks through the checkouts of this node. Both
// decide by what is stored, again and again, so that a deletion frees what it owned whoever ended meanwhile.

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/providers/runner/clone"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/tasks/documents"
)

// tidyEvery is how often is looked.
const tidyEvery = time.Minute

func keepDocuments(ctx context.Context, h *server.Host, js jetstream.JetStream) *documents.Store {
	may, tasks := h.Config.Tasks.Documents, h.Indexes.Get(task.Machine.Name)
	s := documents.New(documents.Options{
		JS: js, Bucket: h.Deps.Names.Bucket(task.DocumentBucket), Log: h.Log,
		Bounds: documents.Bounds{Bytes: may.Bytes(), Each: may.PerRepository, Age: may.Keep},
		Version: func(key string) uint64 {
			item, _ := tasks.Get(key)
			return item.Version
		},
		Owner: func(ctx context.Context, key string) (documents.Owner, error) { return ownerOf(ctx, h, key) },
	})
	h.Go(ctx, "the documents of tasks", s.Run)
	h.Role(ctx, "documents", func(ctx context.Context) error {
		for wait.For(ctx, tidyEvery) {
			if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
				h.Log.Warn("documents could not be looked through; trying again", "error", err)
			}
		}
		return nil
	})
	return s
}

// ownerOf reads what a task refers to from its leader.
func ownerOf(ctx context.Context, h *server.Host, key string) (o documents.Owner, err error) {
	stored, err := h.Deps.Value(ctx, task.Machine, key)
	if err != nil || kv.Absent(stored) {
		return o, err
	}
	e, err := task.Machine.Decode(stored.Data)
	if err != nil {
		return o, err
	}
	d, ok := e.Data.(*task.Data)
	if !ok || e.State == task.Deleted {
		return o, nil
	}
	o = documents.Owner{There: true, Enqueue: d.Enqueue, Ended: e.State != task.Queued && e.State != task.Running}
	if d.Result != nil {
		for _, doc := range d.Result.Documents {
			o.Names = append(o.Names, doc.Name)
		}
	}
	return o, nil
}

// tidy looks through the checkouts until ctx ends.
func tidy(ctx context.Context, h *server.Host, clones *clone.Cloner) {
	repositories := h.Indexes.Get(repository.Machine.Name)
	select {
	case <-repositories.Ready():
	case <-ctx.Done():
		return
	}
	there := func(name string) bool {
		item, ok := repositories.Get(strings.Replace(name, "/", ".", 1))
		return ok && item.State != repository.Deleted
	}
	for first := true; first || wait.For(ctx, tidyEvery); first = false {
		if err := clones.Tidy(there); err != nil && ctx.Err() == nil {
			h.Log.Warn("checkouts could not be removed; trying again", "error", err)
		}
	}
}
