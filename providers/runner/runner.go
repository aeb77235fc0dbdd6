// Package runner performs tasks: it clones repositories, analyses them, runs programs and sends HTTP requests, by the type of the task.
//
// The contract:
//   - A task ends with one result: where its documents are, or a failure that says whether another attempt can help.
//   - Documents have names that no other attempt writes to (task.Run.Documents), so a late attempt overwrites nothing. They are complete, or not there.
//   - It ends soon after its context or its timeout does: a program gets SIGTERM, and SIGKILL after a grace.
//   - Log lines and results contain no credential that is recognized, and are bounded.
//   - A type that is none of [Types] fails for good, without having done anything.
//
// What acts is in the packages below: clone, analyze, program and httpcall. Where documents and log lines go is decided by whoever makes a [Runner].
package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/strictjson"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/runner/analyze"
	"github.com/bcc94042/instar/providers/runner/clone"
	"github.com/bcc94042/instar/providers/runner/httpcall"
	"github.com/bcc94042/instar/providers/runner/program"
)

// Documents is where they are kept.
type Documents interface {
	// Put keeps one. The same name again replaces it.
	Put(ctx context.Context, name, mediaType string, body []byte) (task.Document, error)
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
	Dir       string // for what programs write
	Clones    *clone.Cloner
	Programs  *program.Runner
	HTTP      httpcall.Client
	Documents Documents
	Reports   Reports // nil tells nobody
	Limits    analyze.Limits
	Depth     int // of clones whose task names none; see clone.Source
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
	u.log = &lines{to: u.line}
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
func (u *run) line(text string) {
	if u.Reports != nil {
		u.Reports.Log(&u.t, analyze.Mask(text))
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
		return nil, providers.Errorf(providers.Invalid, "no task of type %q is done here: there are %s", u.job.Type, strings.Join(Types(), ", "))
	}
	return u.analyze(ctx, a)
}

// Clone are the parameters of clone and of the analyses.
type Clone struct {
	Depth int `json:"depth,omitempty"` // commits of history; 0 is the depth of the node, -1 is all
}

// params reads the parameters of the task; unknown ones are refused.
func (u *run) params(into any) error {
	if len(u.job.Params) == 0 || string(u.job.Params) == "null" {
		return nil
	}
	if err := strictjson.Unmarshal(u.job.Params, into); err != nil {
		return providers.Errorf(providers.Invalid, "the parameters of %s: %v", u.job.Type, err)
	}
	return nil
}

func (u *run) source() (clone.Source, error) {
	var p Clone
	if err := u.params(&p); err != nil {
		return clone.Source{}, err
	}
	if u.job.Repository.URL == "" {
		return clone.Source{}, providers.Errorf(providers.Invalid, "repository %s has no url", u.name)
	}
	return clone.Source{URL: u.job.Repository.URL, Ref: u.job.Repository.Ref, Depth: cmp.Or(p.Depth, u.Depth)}, nil
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

func (u *run) analyze(ctx context.Context, a analyze.Analysis) (*task.Result, error) {
	src, err := u.source()
	if err != nil {
		return nil, err
	}
	got, err := u.Clones.Use(ctx, u.name, u.t.Attempt, src, u.log)
	if err != nil {
		return nil, err
	}
	defer got.Release()
	u.progress(10, "reading commit "+got.Commit[:12])
	tree, err := analyze.Open(ctx, got.Dir, u.Limits)
	if err != nil {
		return nil, cmp.Or(ctx.Err(), err)
	}
	defer func() { _ = tree.Close() }() // only read
	found, err := a.Run(ctx, &analyze.Input{Tree: tree, Name: u.name, Commit: got.Commit, History: got.History})
	if err != nil {
		return nil, err
	}
	u.progress(90, "writing documents")
	return u.put(ctx, found.Summary, found.Documents)
}

// put writes documents, and returns them as the result.
func (u *run) put(ctx context.Context, summary string, list []analyze.Document) (*task.Result, error) {
	result := &task.Result{Summary: summary}
	for _, d := range list {
		kept, err := u.Documents.Put(ctx, u.job.Documents+d.Name, d.Type, d.Body)
		if err != nil {
			return nil, cmp.Or(ctx.Err(), error(providers.Errorf(providers.Unavailable, "cannot keep document %s: %v", d.Name, err)))
		}
		u.line(fmt.Sprintf("wrote %s (%d bytes)", kept.Name, kept.Size))
		result.Documents = append(result.Documents, kept)
	}
	return result, nil
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
		return u.put(ctx, summary, nil)
	}
	return u.put(ctx, summary, []analyze.Document{{Name: "response", Type: answer.Type, Body: answer.Body}})
}

// Bounds of what a program may leave as documents.
const (
	maxDocuments = 64
	maxDocument  = 16 << 20
)

// exec runs a program in a directory of its own. What it writes into the one that INSTAR_DOCUMENTS names becomes documents; INSTAR_CHECKOUT is the
// repository, if it has a URL, to be read only.
func (u *run) exec(ctx context.Context) (*task.Result, error) {
	var call program.Call
	if err := u.params(&call); err != nil {
		return nil, err
	}
	if err := u.Programs.Check(&call); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(u.Dir, "exec-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "documents")
	if err := os.Mkdir(out, 0o700); err != nil {
		return nil, err
	}
	env := []string{"INSTAR_DOCUMENTS=" + out, "INSTAR_TASK=" + u.t.Key(), fmt.Sprintf("INSTAR_ATTEMPT=%d", u.job.Attempt)}
	if u.job.Repository.URL != "" {
		got, err := u.Clones.Use(ctx, u.name, u.t.Attempt, clone.Source{URL: u.job.Repository.URL, Ref: u.job.Repository.Ref, Depth: u.Depth}, u.log)
		if err != nil {
			return nil, err
		}
		defer got.Release()
		env = append(env, "INSTAR_CHECKOUT="+got.Dir, "INSTAR_COMMIT="+got.Commit)
	}
	if err := u.Programs.Run(ctx, &call, program.Where{Dir: dir, Env: env, Out: u.log}); err != nil {
		return nil, err
	}
	list, err := written(ctx, out)
	if err != nil {
		return nil, err
	}
	return u.put(ctx, fmt.Sprintf("%s succeeded.", call.Program), list)
}

// written are the files that a program has left in a directory. Links are not followed.
func written(ctx context.Context, dir string) ([]analyze.Document, error) {
	tree, err := analyze.Open(ctx, dir, analyze.Limits{Files: maxDocuments, FileBytes: maxDocument, Bytes: maxDocuments * maxDocument})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tree.Close() }() // only read
	if left := tree.LeftOut(); len(left) > 0 {
		return nil, providers.Errorf(providers.Invalid, "it has written more than %d documents", maxDocuments)
	}
	var list []analyze.Document
	for _, f := range tree.Files {
		if f.Size > maxDocument {
			return nil, providers.Errorf(providers.Invalid, "document %q has more than %d bytes", f.Path, maxDocument)
		}
		body, err := tree.Read(f)
		if err != nil {
			return nil, err
		}
		list = append(list, analyze.Document{Name: f.Path, Type: mediaTypes[path.Ext(f.Path)], Body: body})
	}
	return list, nil
}

var mediaTypes = map[string]string{".md": "text/markdown; charset=utf-8", ".txt": "text/plain; charset=utf-8", ".json": "application/json", ".html": "text/html; charset=utf-8", ".csv": "text/csv"}

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
