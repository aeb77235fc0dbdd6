package tasks

// What a node does with a task: Perform passes it to the runner, and ends it when the task does not wait for it any more (until). Documents go into the object store, log lines into the stream of
// logs, and how far a task is goes to the task itself, at most once a second.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/providers/group"
	"github.com/bcc94042/instar/providers/guard"
	"github.com/bcc94042/instar/providers/runner"
	"github.com/bcc94042/instar/providers/runner/clone"
	"github.com/bcc94042/instar/providers/runner/httpcall"
	"github.com/bcc94042/instar/providers/runner/program"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Runner is what makes the tasks of this node: clones, analyses, HTTP calls, and the programs that the configuration names.
func Runner(_ context.Context, h *server.Host) (effects.Performer, error) {
	_, js, err := h.Connect("task runner")
	if err != nil {
		return nil, err
	}
	may := h.Config.Tasks
	allow, deny, err := h.Config.Discovery.Probe.Networks()
	if err != nil {
		return nil, err
	}
	reach := guard.Guard{Deny: deny, Allow: allow, Own: h.Listening}
	dir := filepath.Join(h.Config.Data, "tasks")
	clones, err := clone.Open(clone.Options{
		Dir: filepath.Join(dir, "clones"), Local: may.Local, Guard: reach, Credentials: credentials(may.Credentials, h.Log), MaxBytes: may.Clone.Bytes(), Timeout: may.Clone.Timeout,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot prepare clones: %w", err)
	}
	work := filepath.Join(dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, fmt.Errorf("cannot prepare the directory of programs: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(work, "exec-*")) // of a process that was killed
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot clear the directory of programs: %w", err)
	}
	programs := map[string]program.Program{}
	for name, p := range may.Programs {
		programs[name] = program.Program{Path: p.Path, Args: p.Args, Arguments: p.Arguments, Env: p.Env}
	}
	memory, file, output := may.Exec.Sizes()
	s := &sink{h: h, js: js, said: map[string]time.Time{}}
	return &performer{
		tasks: h.Indexes.Get(task.Machine.Name),
		run: &runner.Runner{
			Worker: h.Node, Dir: work, Clones: clones, Depth: may.Clone.Depth,
			Programs: &program.Runner{Programs: programs, Limits: group.Limits{CPU: may.Exec.CPU, Memory: memory, File: file}, Output: output},
			HTTP:     httpcall.Client{Guard: reach}, Documents: s, Reports: s,
		},
	}, nil
}

// credentials reads the file of a host at each use, so that a secret can be replaced while the server runs.
func credentials(list []config.Credential, log *slog.Logger) func(string) (clone.Credential, bool) {
	return func(host string) (clone.Credential, bool) {
		for _, c := range list {
			if c.Host != host {
				continue
			}
			secret, err := os.ReadFile(c.PasswordFile)
			if err != nil {
				log.Error("the credential of a host of repositories cannot be read", "host", host, "error", err)
				return clone.Credential{}, false
			}
			return clone.Credential{Username: c.Username, Password: strings.TrimSpace(string(secret))}, true
		}
		return clone.Credential{}, false
	}
}

// performer ends what nobody waits for any more.
type performer struct {
	tasks *index.Index
	run   effects.Performer
}

// Perform does what the task says.
func (p *performer) Perform(ctx context.Context, t machines.Task) machines.Result {
	if t.Effect != task.EffectRun {
		return p.run.Perform(ctx, t)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sub := p.tasks.Subscribe(index.Filter{Key: t.Key()}, 16)
	defer sub.Close()
	go p.until(ctx, cancel, sub, t)
	return p.run.Perform(ctx, t)
}

// until ends the context when the task has moved on: it was canceled or reset, or another attempt runs. What it does not see is refused by the attempt's id in the end.
func (p *performer) until(ctx context.Context, cancel context.CancelFunc, sub *index.Subscription, t machines.Task) {
	moved := func(item index.Item) bool {
		b, _ := item.Value.(*task.Brief)
		return b != nil && item.Version >= t.Fence && (item.State != task.Running || b.AttemptID != t.Attempt)
	}
	if item, ok := p.tasks.Get(t.Key()); ok && moved(item) {
		cancel()
		return
	}
	for {
		select {
		case c, ok := <-sub.C:
			if !ok {
				return
			}
			if c.Deleted || moved(c.Item) {
				cancel()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// sink keeps what tasks write.
type sink struct {
	h  *server.Host
	js jetstream.JetStream

	mu   sync.Mutex
	said map[string]time.Time // when the progress of an attempt was told last
}

func (s *sink) bucket(ctx context.Context) (jetstream.ObjectStore, error) {
	return s.js.ObjectStore(ctx, s.h.Deps.Names.Bucket(task.DocumentBucket))
}

// Put keeps a document.
func (s *sink) Put(ctx context.Context, name, mediaType string, body []byte) (task.Document, error) {
	b, err := s.bucket(ctx)
	if err != nil {
		return task.Document{}, err
	}
	info, err := b.Put(ctx, jetstream.ObjectMeta{Name: name, Headers: nats.Header{"Content-Type": {mediaType}}}, bytes.NewReader(body))
	if err != nil {
		return task.Document{}, fmt.Errorf("cannot keep the document %s: %w", name, err)
	}
	return task.Document{Name: name, MediaType: mediaType, Size: int64(info.Size), Digest: info.Digest}, nil
}

// Erase removes the documents of enqueuings before one.
func (s *sink) Erase(ctx context.Context, prefix string, below uint64) (int, error) {
	b, err := s.bucket(ctx)
	if err != nil {
		return 0, err
	}
	list, err := b.List(ctx)
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	erased := 0
	for _, o := range list {
		rest, ok := strings.CutPrefix(o.Name, prefix)
		number, _, _ := strings.Cut(rest, "/")
		if n, err := strconv.ParseUint(number, 10, 64); !ok || err != nil || n >= below {
			continue
		}
		if err := b.Delete(ctx, o.Name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
			return erased, err
		}
		erased++
	}
	return erased, nil
}

// Log keeps a line. One that is lost is lost: nothing waits for it.
func (s *sink) Log(t *machines.Task, line string) {
	m := &nats.Msg{Subject: s.h.Deps.Names.Log(t.Machine, t.Key()), Data: []byte(line), Header: nats.Header{streams.HeaderAttempt: {t.Attempt}}}
	if err := s.h.Deps.NC.PublishMsg(m); err != nil {
		s.h.Log.Debug("a log line is lost", "task", t.Key(), "error", err)
	}
}

// Progress tells the task, at most once a second.
func (s *sink) Progress(t *machines.Task, percent float64, message string) {
	now := time.Now()
	s.mu.Lock()
	soon := now.Sub(s.said[t.Attempt]) < time.Second
	if !soon {
		for id, at := range s.said {
			if now.Sub(at) > time.Minute {
				delete(s.said, id)
			}
		}
		s.said[t.Attempt] = now
	}
	s.mu.Unlock()
	if soon {
		return
	}
	data, err := json.Marshal(task.Progress{Attempt: t.Attempt, Worker: s.h.Node, Percent: percent, Message: message})
	if err != nil {
		return
	}
	body, err := json.Marshal(machines.Report{Data: data})
	if err != nil {
		return
	}
	_ = s.h.Deps.Commands.Start(publish.Command{Machine: t.Machine, Key: t.Key(), Name: task.ReportProgress, Actor: s.h.Node, Body: body}, "", nil) // the next one is as good
}
