package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/runner/analyze"
	"github.com/bcc94042/instar/providers/runner/child"
	"github.com/bcc94042/instar/providers/runner/clone"
	"github.com/bcc94042/instar/providers/runner/program"
)

// Bounds of what a program may leave as documents.
const (
	maxDocuments = 64
	maxDocument  = 16 << 20
)

// childName is that of the process of an analysis.
const childName = "analyze"

func init() { child.Do(childName, analyzeApart) }

// analysis is what that process is told, and analyzed what it answers. Its documents are files in Out.
type analysis struct {
	Analysis, Name, Commit string
	Dir, Log, Out          string
	Limits                 analyze.Limits
}

type analyzed struct {
	Summary   string
	Documents []file
}

// file is a document on this disk, by its path below a directory.
type file struct{ Path, Type string }

func analyzeApart(ctx context.Context, q analysis) (analyzed, error) {
	a, ok := analyze.Find(q.Analysis)
	if !ok {
		return analyzed{}, providers.Errorf(providers.Invalid, "there is no analysis %q", q.Analysis)
	}
	tree, err := analyze.Open(ctx, q.Dir, q.Limits)
	if err != nil {
		return analyzed{}, err
	}
	defer func() { _ = tree.Close() }() // only read
	found, err := a.Run(ctx, &analyze.Input{Tree: tree, Name: q.Name, Commit: q.Commit, History: clone.History(q.Dir, q.Log)})
	if err != nil {
		return analyzed{}, err
	}
	out := analyzed{Summary: found.Summary}
	for _, d := range found.Documents {
		if err := os.WriteFile(filepath.Join(q.Out, d.Name), d.Body, 0o600); err != nil {
			return analyzed{}, err
		}
		out.Documents = append(out.Documents, file{d.Name, d.Type})
	}
	return out, nil
}

// place is a directory for this run, with one for documents in it.
func (u *run) place() (dir, documents string, remove func(), err error) {
	if dir, err = os.MkdirTemp(u.Dir, "task-"); err != nil {
		return "", "", nil, fmt.Errorf("cannot make a directory for the task: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) } // at the latest with the next start
	documents = filepath.Join(dir, "documents")
	if err := os.Mkdir(documents, 0o700); err != nil {
		remove()
		return "", "", nil, fmt.Errorf("cannot make a directory for the task: %w", err)
	}
	return dir, documents, remove, nil
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
	dir, documents, remove, err := u.place()
	if err != nil {
		return nil, err
	}
	defer remove()
	what := analysis{Analysis: a.Name, Name: u.name, Commit: got.Commit, Dir: got.Dir, Out: documents, Limits: u.Limits.Within(u.Apart.WithDefaults().Memory)}
	if a.History {
		if what.Log, err = got.Log(ctx, dir, u.Limits.WithDefaults().Commits); err != nil {
			return nil, err
		}
	}
	var found analyzed
	if err := (&child.Command{Name: childName, Limits: u.Apart}).Run(ctx, what, &found); err != nil {
		return nil, err
	}
	u.progress(90, "writing documents")
	list, err := u.putAll(ctx, documents, found.Documents)
	return &task.Result{Summary: found.Summary, Documents: list}, err
}

// exec runs a program in a directory of its own. What it writes into the one that INSTAR_DOCUMENTS names becomes documents; INSTAR_CHECKOUT is the
// repository, if it has a URL, to be read only.
func (u *run) exec(ctx context.Context) (*task.Result, error) {
	var call program.Call
	if err := u.params(&call); err != nil {
		return nil, err
	}
	if err := u.Programs.Check(u.t.Namespace, &call); err != nil {
		return nil, err
	}
	dir, out, remove, err := u.place()
	if err != nil {
		return nil, err
	}
	defer remove()
	if as := u.Programs.As; as != nil {
		if err := errors.Join(os.Chown(dir, int(as.UID), int(as.GID)), os.Chown(out, int(as.UID), int(as.GID))); err != nil {
			return nil, fmt.Errorf("cannot give the directory of the task to the user of programs: %w", err)
		}
	}
	env := []string{"INSTAR_DOCUMENTS=" + out, "INSTAR_TASK=" + u.t.Key(), fmt.Sprintf("INSTAR_ATTEMPT=%d", u.job.Attempt)}
	if u.job.Repository.URL != "" {
		got, err := u.Clones.Use(ctx, u.name, u.t.Attempt, u.sourceOf(u.Depth), u.log)
		if err != nil {
			return nil, err
		}
		defer got.Release()
		env = append(env, "INSTAR_CHECKOUT="+got.Dir, "INSTAR_COMMIT="+got.Commit)
	}
	if err := u.Programs.Run(ctx, &call, program.Where{Namespace: u.t.Namespace, Dir: dir, Env: env, Out: u.log, LeftOut: u.log.leftOut}); err != nil {
		return nil, err
	}
	files, err := written(ctx, out)
	if err != nil {
		return nil, err
	}
	list, err := u.putAll(ctx, out, files)
	return &task.Result{Summary: fmt.Sprintf("%s succeeded.", call.Program), Documents: list}, err
}

// written are the files that a program has left in a directory. Links are not followed.
func written(ctx context.Context, dir string) ([]file, error) {
	tree, err := analyze.Open(ctx, dir, analyze.Limits{Files: maxDocuments})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tree.Close() }() // only read
	if left := tree.LeftOut(); len(left) > 0 {
		return nil, providers.Errorf(providers.LimitExceeded, "it has written more than %d documents, or such as cannot be read", maxDocuments)
	}
	var list []file
	for _, f := range tree.Files {
		if f.Size > maxDocument {
			return nil, providers.Errorf(providers.LimitExceeded, "document %q has more than %d bytes", f.Path, maxDocument)
		}
		list = append(list, file{f.Path, mediaTypes[path.Ext(f.Path)]})
	}
	return list, nil
}

var mediaTypes = map[string]string{".md": "text/markdown; charset=utf-8", ".txt": "text/plain; charset=utf-8", ".json": "application/json", ".html": "text/html; charset=utf-8", ".csv": "text/csv"}

// putAll keeps files below a directory as documents, one after the other, so that no more than a piece of one is in memory.
func (u *run) putAll(ctx context.Context, dir string, files []file) ([]task.Document, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // only read
	for _, f := range files {
		if !task.NamesDocument(u.job.Documents + f.Path) {
			return nil, providers.Errorf(providers.LimitExceeded, "document %.100q cannot be kept under this path: with %s before it, it has more than %d bytes, or is not UTF-8", f.Path, u.job.Documents, task.MaxDocumentName)
		}
	}
	var list []task.Document
	for _, f := range files {
		h, err := root.Open(f.Path)
		if err != nil {
			return nil, err
		}
		info, err := h.Stat()
		if err != nil {
			return nil, errors.Join(err, h.Close())
		}
		kept, err := u.put(ctx, f.Path, f.Type, info.Size(), h)
		if err = errors.Join(err, h.Close()); err != nil {
			return nil, err
		}
		list = append(list, kept)
	}
	return list, nil
}

// put keeps one document.
func (u *run) put(ctx context.Context, name, mediaType string, size int64, body io.Reader) (task.Document, error) {
	kept, err := u.Documents.Put(ctx, u.job.Documents+name, mediaType, size, body)
	if err != nil {
		return kept, cmp.Or(ctx.Err(), error(providers.Errorf(providers.Unavailable, "cannot keep document %s: %v", name, err)))
	}
	u.line(fmt.Sprintf("wrote %s (%d bytes)", kept.Name, kept.Size))
	return kept, nil
}
