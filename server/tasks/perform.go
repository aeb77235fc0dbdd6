package tasks

// What a node does with a task: Perform passes it to the runner, and ends it when the task does not wait for it any more (until). Documents go into the object store, log lines into the stream of
// logs, and how far a task is goes to the task itself, at most once a second.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/consumers/effects"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/providers/group"
	"github.com/bcc94042/instar/providers/guard"
	"github.com/bcc94042/instar/providers/runner"
	"github.com/bcc94042/instar/providers/runner/child"
	"github.com/bcc94042/instar/providers/runner/clone"
	"github.com/bcc94042/instar/providers/runner/httpcall"
	"github.com/bcc94042/instar/providers/runner/program"
	"github.com/bcc94042/instar/providers/runner/usage"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/tasks/documents"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Runner is what makes the tasks of this node: clones, analyses, HTTP calls, and the programs that the configuration names.
func Runner(ctx context.Context, h *server.Host) (effects.Performer, error) {
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
	dir, err := filepath.Abs(filepath.Join(h.Config.Data, "tasks")) // processes that read checkouts have directories of their own
	if err != nil {
		return nil, fmt.Errorf("cannot find the directory of tasks: %w", err)
	}
	as, err := account(may.Exec, h.Config.Data, dir)
	if err != nil {
		return nil, fmt.Errorf("cannot run programs as another user: %w", err)
	}
	readers := 0
	if as != nil {
		readers = int(as.GID)
	}
	each, total := may.Clone.Sizes()
	clones, err := clone.Open(clone.Options{
		Dir: filepath.Join(dir, "clones"), Local: may.Local, LocalFor: may.LocalFor, Group: readers, Guard: reach, Credentials: credentials(may.Credentials, h.Log), MaxBytes: each, MaxEntries: int64(may.Clone.Files), Timeout: may.Clone.Timeout,
		Total: total, Keep: may.Clone.Keep,
		Memory: may.Clone.MemoryBytes(), CPU: may.Clone.CPU,
	})
	if err != nil {
		return nil, fmt.Errorf("cannot prepare clones: %w", err)
	}
	h.Go(ctx, "the checkouts of repositories", func(ctx context.Context) error { tidy(ctx, h, clones); return nil })
	work := filepath.Join(dir, "work")
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, fmt.Errorf("cannot prepare the directory of programs: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(work, "*")) // of a process that was killed
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot clear the directory of programs: %w", err)
	}
	programs := map[string]program.Program{}
	for name, p := range may.Programs {
		programs[name] = program.Program{Path: p.Path, Args: p.Args, Arguments: p.Arguments, Env: p.Env, Namespaces: p.Namespaces}
	}
	memory, file, output := may.Exec.Sizes()
	limits := group.Limits{CPU: may.Exec.CPU, Memory: memory, File: file}
	room := &space{dir: work, tasks: may.AtOnce(), offer: func(n int) { h.Member.Offer(offered, n) }, log: h.Log, now: time.Now}
	h.Go(ctx, "the room for tasks", room.Run)
	s := &sink{Store: keepDocuments(ctx, h, js), h: h, said: map[string]time.Time{}}
	return &performer{
		space: room, tasks: h.Indexes.Get(task.Machine.Name),
		run: &runner.Runner{
			Worker: h.Node, Dir: work, Clones: clones, Depth: may.Clone.Depth, Apart: child.Limits{Memory: may.Clone.MemoryBytes(), CPU: may.Clone.CPU},
			Programs: &program.Runner{Programs: programs, Limits: limits, Output: output, Disk: usage.Of{Bytes: may.Exec.DiskBytes(), Entries: int64(may.Clone.Files)}, As: as},
			HTTP:     httpcall.Client{Guard: reach}, Documents: s, Reports: s,
		},
	}, nil
}

// account is whom programs run as, if that is another user. Its group passes through the directories above checkouts and above the directories of programs.
func account(may config.TasksExec, above ...string) (*program.User, error) {
	uid, gid, ok, err := may.Account()
	if err != nil || !ok {
		return nil, err
	}
	last := above[len(above)-1]
	for _, dir := range append(above, filepath.Join(last, "clones"), filepath.Join(last, "work")) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		info, err := os.Stat(dir)
		if err == nil {
			err = errors.Join(os.Chown(dir, -1, int(gid)), os.Chmod(dir, info.Mode().Perm()|0o010))
		}
		if err != nil {
			return nil, err
		}
	}
	return &program.User{UID: uid, GID: gid}, nil
}

// credentials reads the file of a host at each use, so that a secret can be replaced while the server runs. What is for the namespace goes before what is for all.
func credentials(list []config.Credential, log *slog.Logger) func(namespace, host string) (clone.Credential, bool) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b config.Credential) int {
		return cmp.Compare(min(len(b.Namespaces), 1), min(len(a.Namespaces), 1))
	})
	return func(namespace, host string) (clone.Credential, bool) {
		for _, c := range list {
			if c.Host != host || len(c.Namespaces) > 0 && !slices.Contains(c.Namespaces, namespace) {
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
	space *space
}

// Check says why no node could do a task of a type.
func (p *performer) Check(typ string, params json.RawMessage) error {
	return runner.Check(typ, params)
}

// Perform does what the task says.
func (p *performer) Perform(ctx context.Context, t machines.Task) machines.Result {
	r := p.perform(ctx, t)
	if r.Failure != nil && r.Failure.Retryable { // before the next attempt is planned
		p.space.look()
	}
	return r
}

func (p *performer) perform(ctx context.Context, t machines.Task) machines.Result {
	if t.Effect != task.EffectRun {
		return p.run.Perform(ctx, t)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go p.until(ctx, cancel, t)
	return p.run.Perform(ctx, t)
}

// until ends the context when the task has moved on: it was canceled or reset, or another attempt runs. What it does not see is refused by the attempt's id in the end.
func (p *performer) until(ctx context.Context, cancel context.CancelFunc, t machines.Task) {
	moved := func(item index.Item) bool {
		b, _ := item.Value.(*task.Brief)
		return b != nil && item.Version >= t.Fence && (item.State != task.Running || b.AttemptID != t.Attempt)
	}
	for ctx.Err() == nil { // again when the index was built anew
		sub := p.tasks.Subscribe(index.Filter{Key: t.Key()}, 16)
		item, ok := p.tasks.Get(t.Key())
		if ok && moved(item) || p.changes(ctx, sub, moved) {
			cancel()
		}
		sub.Close()
	}
}

// changes reports whether one of the changes ends the task. It returns when the subscription is lost, too.
func (p *performer) changes(ctx context.Context, sub *index.Subscription, ends func(index.Item) bool) bool {
	for {
		select {
		case c, ok := <-sub.C:
			if !ok {
				return false
			}
			if c.Deleted || ends(c.Item) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// sink keeps what tasks write.
type sink struct {
	*documents.Store
	h *server.Host

	mu   sync.Mutex
	said map[string]time.Time // when the progress of an attempt was told last
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
