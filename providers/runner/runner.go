// Package runner performs tasks: it clones repositories, analyses them, runs programs and sends HTTP requests, by the type of the task.
//
// The contract:
//   - A task ends with one result: where its documents are, or a failure that says whether another attempt can help.
//   - Documents have names that no other attempt writes to (task.Run.Documents), so a late attempt overwrites nothing. They are complete, or not there.
//   - It ends soon after its context or its timeout does: a program gets SIGTERM, and SIGKILL after a grace.
//   - What a repository holds is read in processes of their own, whose memory, time and files are bounded (package child). One that dies fails the attempt, and the failure says why.
//   - Log lines and results contain no credential that is recognized, and are bounded.
//   - A type that is none of [Types] fails for good, without having done anything.
//
// What acts is in the packages below: clone, analyze, program and httpcall. Where documents and log lines go is decided by whoever makes a [Runner].
package runner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/strictjson"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/runner/analyze"
	"github.com/bcc94042/instar/providers/runner/child"
	"github.com/bcc94042/instar/providers/runner/clone"
	"github.com/bcc94042/instar/providers/runner/httpcall"
	"github.com/bcc94042/instar/providers/runner/program"
)

// Documents is where they are kept.
type Documents interface {
	// Put keeps one of so many bytes. The same name again replaces it.
	Put(ctx context.Context, name, mediaType string, size int64, body io.Reader) (task.Document, error)
	// Erase removes those whose name begins with the prefix and then has a number below the given one, and says how many.
	Erase(ctx context.Context, prefix string, below uint64) (int, error)
}

// Reports is who is told how it goes. Neither call waits for anything.
type Reports interface {
	Log(t *machines.Task, line string)
	Progress(t *machines.Task, percent float64, message string)
}

// Runner performs the effects of machine task. All fields but Reports are required.
type Runner struct {
	Worker    string // name of this one, in results
	Dir       string // for what programs and analyses write; what is in it when a process starts is of no use
	Clones    *clone.Cloner
	Programs  *program.Runner
	HTTP      httpcall.Client
	Documents Documents
	Reports   Reports // nil tells nobody
	Limits    analyze.Limits
	Apart     child.Limits // of the process of an analysis
	Depth     int          // of clones whose task names none; see clone.Source
}

// Types of tasks besides the names of analyses.
const (
	TypeClone = "clone"
	TypeExec  = "exec"
	TypeHTTP  = "http"
)

// Types are all types of tasks that are performed.
func Types() []string {
	list := []string{TypeClone, TypeExec, TypeHTTP}
	for _, a := range analyze.All {
		list = append(list, a.Name)
	}
	slices.Sort(list)
	return list
}

// run is one task.
type run struct {
	*Runner
	t    machines.Task
	job  task.Run
	log  *lines
	name string // <namespace>/<repository>
}

// Perform does what the task says.
func (r *Runner) Perform(ctx context.Context, t machines.Task) machines.Result {
	if t.Effect == task.EffectErase {
		return r.erase(ctx, t)
	}
	var job task.Run
	if err := json.Unmarshal(t.Data, &job); err != nil {
		return machines.Result{Failure: providers.Failure(providers.Errorf(providers.Invalid, "the task cannot be read: %v", err))}
	}
	u := &run{Runner: r, t: t, job: job, name: cmp.Or(job.Repository.Path, t.Namespace+"/"+t.Parent)}
	u.log = &lines{to: u.tell}
	if job.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, job.Timeout)
		defer cancel()
	}
	began := time.Now()
	u.line(fmt.Sprintf("%s: attempt %d of %d by %s", job.Type, job.Attempt, job.Attempts, r.Worker))
	result, err := u.perform(ctx)
	u.log.flush()
	if errors.Is(err, context.DeadlineExceeded) {
		err = providers.Errorf(providers.Timeout, "it was not done within %s", job.Timeout)
	}
	if err != nil {
		f := providers.Failure(err)
		f.Message = analyze.Mask(f.Message)
		u.line("failed: " + f.Message)
		return machines.Result{Failure: f}
	}
	result.Worker, result.Summary = r.Worker, analyze.Mask(result.Summary)
	u.line(fmt.Sprintf("done in %s: %s", time.Since(began).Round(time.Millisecond), result.Summary))
	return machines.Result{Data: result}
}

// line is one line of the log.
func (u *run) line(text string) { u.tell(analyze.Mask(text)) }

// tell is one line without what looks like a credential.
func (u *run) tell(text string) {
	if u.Reports != nil {
		u.Reports.Log(&u.t, text)
	}
}

func (u *run) progress(percent float64, message string) {
	if u.Reports != nil {
		u.Reports.Progress(&u.t, percent, message)
	}
}

func (u *run) perform(ctx context.Context) (*task.Result, error) {
	switch u.job.Type {
	case TypeClone:
		return u.clone(ctx)
	case TypeExec:
		return u.exec(ctx)
	case TypeHTTP:
		return u.http(ctx)
	}
	a, ok := analyze.Find(u.job.Type)
	if !ok {
		return nil, unknown(u.job.Type)
	}
	return u.analyze(ctx, a)
}

// Clone are the parameters of clone and of the analyses.
type Clone struct {
	Depth int `json:"depth,omitempty"` // commits of history, at least; 0 is the depth of the node, -1 is all
}

// params reads the parameters of the task; unknown ones are refused.
func (u *run) params(into any) error { return read(u.job.Type, u.job.Params, into) }

func read(typ string, params json.RawMessage, into any) error {
	if len(params) == 0 || string(params) == "null" {
		return nil
	}
	if err := strictjson.Unmarshal(params, into); err != nil {
		return providers.Errorf(providers.Invalid, "the parameters of %s: %v", typ, err)
	}
	return nil
}

// Check says why no node could ever do a task of a type with such parameters, or nil. What depends on the configuration of the node is not looked at.
func Check(typ string, params json.RawMessage) error {
	switch typ {
	case TypeExec:
		var call program.Call
		if err := read(typ, params, &call); err != nil {
			return err
		}
		if call.Program == "" {
			return providers.Errorf(providers.Invalid, "the parameters of exec: program is missing")
		}
		return nil
	case TypeHTTP:
		var call httpcall.Call
		if err := read(typ, params, &call); err != nil {
			return err
		}
		if err := httpcall.Check(&call); err != nil {
			return providers.Errorf(providers.Invalid, "the parameters of http: %s", providers.Failure(err).Message)
		}
		return nil
	}
	if _, ok := analyze.Find(typ); !ok && typ != TypeClone {
		return unknown(typ)
	}
	return read(typ, params, &Clone{})
}

func unknown(typ string) error {
	return providers.Errorf(providers.Invalid, "no task of type %q is done here: there are %s; one of another type needs the pool of its workers", typ, strings.Join(Types(), ", "))
}

func (u *run) source() (clone.Source, error) {
	var p Clone
	if err := u.params(&p); err != nil {
		return clone.Source{}, err
	}
	if u.job.Repository.URL == "" {
		return clone.Source{}, providers.Errorf(providers.Invalid, "repository %s has no url", u.name)
	}
	return u.sourceOf(cmp.Or(p.Depth, u.Depth)), nil
}

func (u *run) sourceOf(depth int) clone.Source {
	return clone.Source{URL: u.job.Repository.URL, Ref: u.job.Repository.Ref, Depth: depth, Clone: u.job.Repository.Clone}
}

// Cloned is the output of clone.
type Cloned struct {
	Commit string `json:"commit"`
	Bytes  int64  `json:"bytes"`
}

func (u *run) clone(ctx context.Context) (*task.Result, error) {
	src, err := u.source()
	if err != nil {
		return nil, err
	}
	got, err := u.Clones.Fetch(ctx, u.name, u.t.Attempt, src, u.log)
	if err != nil {
		return nil, err
	}
	defer got.Release()
	output, err := json.Marshal(Cloned{Commit: got.Commit, Bytes: got.Bytes})
	return &task.Result{Summary: fmt.Sprintf("Commit %s, %d KiB with its history.", got.Commit, got.Bytes>>10), Output: output}, err
}

func (u *run) http(ctx context.Context) (*task.Result, error) {
	var call httpcall.Call
	if err := u.params(&call); err != nil {
		return nil, err
	}
	client := u.HTTP
	client.Headers = map[string]string{"Idempotency-Key": fmt.Sprintf("%s.%d", u.t.Key(), u.job.Enqueue)}
	answer, err := client.Do(ctx, &call)
	if answer == nil || err != nil {
		return nil, err
	}
	summary := fmt.Sprintf("Answered with %d, %d bytes.", answer.Status, len(answer.Body))
	if answer.Cut {
		summary = fmt.Sprintf("Answered with %d; of the body the first %d bytes were kept.", answer.Status, len(answer.Body))
	}
	if len(answer.Body) == 0 {
		return &task.Result{Summary: summary}, nil
	}
	kept, err := u.put(ctx, "response", answer.Type, int64(len(answer.Body)), bytes.NewReader(answer.Body))
	return &task.Result{Summary: summary, Documents: []task.Document{kept}}, err
}

func (r *Runner) erase(ctx context.Context, t machines.Task) machines.Result {
	var e task.Erase
	err := json.Unmarshal(t.Data, &e)
	if err != nil || !strings.HasPrefix(e.Documents, task.Prefix(t.Namespace, t.Parent, t.ID)) {
		return machines.Result{Failure: providers.Failure(providers.Errorf(providers.Invalid, "the task cannot be read: %v", err))}
	}
	n, err := r.Documents.Erase(ctx, e.Documents, e.Below)
	if err != nil {
		return machines.Result{Failure: providers.Failure(cmp.Or(ctx.Err(), error(providers.Errorf(providers.Unavailable, "cannot erase documents: %v", err))))}
	}
	return machines.Result{Data: task.Erased{Documents: n}}
}
