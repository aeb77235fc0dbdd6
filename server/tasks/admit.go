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
	back                func(publish.Command)                                 // the same for what was only asked about; nil is nothing
	stored              func(m *machines.Machine, key string) (string, error) // a state, as its leader has it
	check               func(typ string, params json.RawMessage) error        // why no node could do a task; nil knows of nothing
}

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
		return d.create(cmd.Key, &b)
	case task.CommandSchedule:
		var b task.ScheduleBody
		if json.Unmarshal(cmd.Body, &b) == nil && b.Validate() == nil {
			return comes(b.Cron, b.TimeZone)
		}
	case task.CommandRun, task.CommandRetry:
		item, ok := d.tasks.Get(cmd.Key)
		brief, _ := item.Value.(*task.Brief)
		if !ok || brief == nil || item.State == task.Queued || item.State == task.Running {
			return nil
		}
		return d.queue(cmd.Key, brief)
	}
	return nil
}

// withdraw takes back the place of a task.
func (d *door) withdraw(cmd publish.Command) {
	if cmd.Machine == task.Machine.Name {
		d.board.Withdraw(cmd.Key)
	} else if d.back != nil {
		d.back(cmd)
	}
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
	if !b.Run {
		return nil
	}
	return d.queue(key, &task.Brief{Type: b.Type, Pool: b.Pool, UniqueKey: b.UniqueKey})
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
	return nil
}

// there reports whether a task is stored, whatever has been seen. One that cannot be read is not: the client is told to try again, or finds out why.
func (d *door) there(key string) bool {
	state, err := d.stored(task.Machine, key)
	return err == nil && state != machines.None && state != task.Deleted
}

// queue refuses a task for which there is no room, or whose unique key another one has.
func (d *door) queue(key string, brief *task.Brief) error {
	if _, _, _, err := streams.SplitKey(key); err != nil {
		return nil
	}
	if d.board.Crowded(brief.Pool) {
		return problem.New(problem.CodeRateLimited, fmt.Sprintf("the tasks that are queued or run have %d pools already, as many as they may", orchestrator.MaxPools)).With("Retry-After", fullFor)
	}
	switch o := d.board.Place(key, brief); {
	case o.Holder != "":
		return problem.New(machines.CodeExists, fmt.Sprintf("the task %s is active and has the unique key %s", o.Holder, brief.UniqueKey))
	case o.Full != "":
		return problem.New(problem.CodeRateLimited, fmt.Sprintf("%s has %d queued tasks, as many as it may", o.Full, o.Most)).With("Retry-After", fullFor)
	}
	return nil
}
