package tasks

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/consumers/orchestrator"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// door refuses what cannot be queued now, or ever.
type door struct {
	board               *orchestrator.Board
	tasks, repositories *index.Index
	next                func(publish.Command) error                           // of other machines
	places              func(publish.Command) (left, error)                   // the same; nil has none
	stored              func(m *machines.Machine, key string) (string, error) // a state, as its leader has it
	check               func(typ string, params json.RawMessage) error        // why no node could do a task; nil knows of nothing
}

// left is told what has become of a command.
type left = func(*machines.Answer, error)

// fullFor is what a client is told to wait for room, in seconds.
const fullFor = "5"

func (d *door) admit(cmd publish.Command) error {
	if cmd.Machine == queue.Machine.Name && cmd.Name == queue.CommandConfigure && cmd.Key != "" {
		var b queue.ConfigureBody
		if json.Unmarshal(cmd.Body, &b) == nil && b.Rate > 0 && d.board.Rated(cmd.Key) {
			return problem.Invalid("body", fmt.Sprintf("rate: %d queues have one, as many as may", orchestrator.MaxRates))
		}
	}
	if cmd.Machine == repository.Machine.Name {
		if err := d.analyses(cmd); err != nil {
			return err
		}
	}
	if cmd.Machine != task.Machine.Name || cmd.Key == "" {
		if d.next != nil {
			return d.next(cmd)
		}
		return nil
	}
	switch cmd.Name {
	case task.CommandCreate:
		var b task.CreateBody
		if json.Unmarshal(cmd.Body, &b) != nil {
			return nil // which the engine refuses
		}
		if err := d.create(cmd.Key, &b); err != nil {
			return err
		}
	case task.CommandSchedule:
		var b task.ScheduleBody
		if json.Unmarshal(cmd.Body, &b) == nil && b.Validate() == nil {
			return comes(b.Times())
		}
	}
	brief := d.queues(cmd)
	if brief == nil {
		return nil
	}
	return refused(brief, d.board.Obstacle(cmd.Key, brief))
}

// place gives a task that a command queues its place, until it is known what became of the command.
func (d *door) place(cmd publish.Command) (left, error) {
	if cmd.Machine != task.Machine.Name && d.places != nil {
		return d.places(cmd)
	}
	brief := d.queues(cmd)
	if brief == nil {
		return nil, nil
	}
	p, o := d.board.Place(cmd.Key, brief)
	if p == nil {
		return nil, refused(brief, o)
	}
	return p.Left, nil
}

// queues is the task that a command would queue; nil where it queues none.
func (d *door) queues(cmd publish.Command) *task.Brief {
	if _, _, _, err := streams.SplitKey(cmd.Key); err != nil || cmd.Machine != task.Machine.Name {
		return nil
	}
	switch cmd.Name {
	case task.CommandCreate:
		var b task.CreateBody
		if json.Unmarshal(cmd.Body, &b) == nil && b.Run {
			return &task.Brief{Type: b.Type, Pool: b.Pool, UniqueKey: b.UniqueKey}
		}
	case task.CommandRun, task.CommandRetry:
		item, _ := d.tasks.Get(cmd.Key)
		if brief, _ := item.Value.(*task.Brief); item.State != task.Queued && item.State != task.Running {
			return brief
		}
	}
	return nil
}

func (d *door) create(key string, b *task.CreateBody) error {
	namespace, parent, _, err := streams.SplitKey(key)
	if err != nil {
		return nil
	}
	select {
	case <-d.repositories.Ready():
	default:
		return problem.Unavailable("the repositories are still being read; this request stored nothing")
	}
	repo, ok := d.repositories.Get(machines.Key(namespace, "", parent))
	state := repo.State
	if !ok || state == repository.Deleted { // it may have been created just now
		if state, err = d.stored(repository.Machine, machines.Key(namespace, "", parent)); err != nil {
			return problem.Unavailable("the repository cannot be read now; this request stored nothing")
		}
	}
	if state == machines.None || state == repository.Deleted || state == repository.Deleting {
		return problem.New(machines.CodeNotFound, "there is no repository "+parent+"; create it first")
	}
	if why := d.board.Unfit(key, b.RunAfter, d.there); why != "" {
		return problem.Invalid("body", why)
	}
	if b.Validate() == nil { // else the engine says what is wrong
		if err := comes(b.Cron, b.TimeZone); err != nil {
			return err
		}
		if err := d.doable(b.Type, b.Pool, b.Params); err != nil {
			return err
		}
	}
	return nil
}

// doable refuses a task that no node could do. What workers elsewhere can do is theirs to know.
func (d *door) doable(typ, pool string, params json.RawMessage) error {
	if d.check == nil || pool != "" && pool != task.NodesPool {
		return nil
	}
	if err := d.check(typ, params); err != nil {
		return problem.Invalid("body", err.Error())
	}
	return nil
}

// comes refuses a schedule that has no next time.
func comes(cron, zone string) error {
	if cron != "" && !task.Comes(cron, zone, time.Now()) {
		return problem.Invalid("body.cron", "has no time that is still to come")
	}
	return nil
}

// analyses refuses those of a repository that no node could make.
func (d *door) analyses(cmd publish.Command) error {
	if cmd.Name != repository.CommandCreate && cmd.Name != repository.CommandConfigure {
		return nil
	}
	var b repository.CreateBody // that of configure has no more
	if json.Unmarshal(cmd.Body, &b) != nil || b.Validate() != nil {
		return nil
	}
	for _, typ := range b.Analyses {
		if err := d.doable(typ, "", nil); err != nil {
			return err
		}
	}
	if d.check != nil && len(b.Analyses) > 0 && b.URL == "" { // what these do needs no url where nobody knows what it is
		return problem.Invalid("body.analyses", "need a url: they read what is cloned from there")
	}
	return nil
}

// there reports whether a task is stored, whatever has been seen. One that cannot be read is not: the client is told to try again, or finds out why.
func (d *door) there(key string) bool {
	state, err := d.stored(task.Machine, key)
	return err == nil && state != machines.None && state != task.Deleted
}

// refused is why there is no room for a task, or that another one has its unique key; nil where it gets in.
func refused(brief *task.Brief, o orchestrator.Obstacle) error {
	switch {
	case o.Crowded:
		return problem.New(problem.CodeRateLimited, fmt.Sprintf("the tasks that are queued or run have %d pools already, as many as they may", orchestrator.MaxPools)).With("Retry-After", fullFor)
	case o.Holder != "" && o.Asked:
		return problem.New(machines.CodeExists, fmt.Sprintf("the task %s is being queued with the unique key %s", o.Holder, brief.UniqueKey))
	case o.Holder != "":
		return problem.New(machines.CodeExists, fmt.Sprintf("the task %s is active and has the unique key %s", o.Holder, brief.UniqueKey))
	case o.Full != "":
		return problem.New(problem.CodeRateLimited, fmt.Sprintf("%s has %d queued tasks, as many as it may", o.Full, o.Most)).With("Retry-After", fullFor)
	}
	return nil
}
