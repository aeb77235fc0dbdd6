package clone

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/group"
	"github.com/bcc94042/instar/providers/runner/usage"
)

// fetch is one fetch into a directory of its own.
type fetch struct {
	c    *Cloner
	url  string
	host string
	src  Source
	dir  string
	log  io.Writer

	secret             Credential
	proxy, proxySecret string // address and password of the way to the network
}

// run fetches within the limits, and returns the commit and the size.
func (f *fetch) run(ctx context.Context) (commit string, size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.c.opts.Timeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if f.host != "" {
		way := &proxy{guard: f.c.opts.Guard, left: f.c.opts.MaxBytes, over: func() { stop(tooLarge(f.c.most())) }}
		if err := way.start(); err != nil {
			return "", 0, fmt.Errorf("cannot open the way to the network: %w", err)
		}
		defer func() {
			way.close()
			if why := way.refused.Load(); err != nil && why != nil {
				err = providers.Errorf(providers.Invalid, "cannot clone: %s", *why)
			}
		}()
		f.proxy, f.proxySecret = way.address, way.secret
	}
	unwatch := usage.Watch(ctx, f.dir, usage.Of{Bytes: f.c.opts.MaxBytes, Entries: f.c.opts.MaxEntries + ownEntries}, func() { stop(tooLarge(f.c.most())) })
	if f.c.git != "" {
		commit, err = f.byProgram(ctx)
	} else {
		commit, err = f.byLibrary(ctx)
	}
	unwatch()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
		if errors.Is(err, context.DeadlineExceeded) {
			err = providers.Errorf(providers.Timeout, "the repository could not be cloned within %s", f.c.opts.Timeout)
		}
	}
	if err != nil && ctx.Err() == nil && usage.Look(f.dir, usage.Of{}).Bytes >= f.c.opts.MaxBytes {
		err = tooLarge(f.c.most()) // a single file has reached the limit of its writer, which tells only that it failed
	}
	if err != nil {
		return "", 0, err
	}
	if size = usage.Look(f.dir, usage.Of{}).Bytes; size > f.c.opts.MaxBytes {
		return "", 0, tooLarge(f.c.most())
	}
	return commit, size, nil
}

// ownEntries is how many files git has of its own.
const ownEntries = 10_000

// most is how much a fetch may write.
func (c *Cloner) most() usage.Of {
	return usage.Of{Bytes: c.opts.MaxBytes, Entries: c.opts.MaxEntries}
}

// byProgram fetches with git.
func (f *fetch) byProgram(ctx context.Context) (string, error) {
	home, err := os.MkdirTemp(filepath.Dir(f.dir), partial+"git-") // removed at the next start, too: it has a secret
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(home) }()
	g := f.program(home)
	if err := g.config(f); err != nil {
		return "", err
	}
	if _, err := g.run(ctx, f.dir, "init", "--quiet", "--template="); err != nil {
		return "", err
	}
	args := []string{"fetch", "--no-tags", "--no-recurse-submodules", "--no-write-commit-graph", "--no-auto-maintenance", "--quiet"}
	if d := f.depth(); d > 0 {
		args = append(args, "--depth="+strconv.Itoa(d))
	}
	ref := f.src.Ref
	if ref == "" {
		ref = "HEAD"
	}
	if _, err := g.run(ctx, f.dir, append(args, "--end-of-options", f.url, ref)...); err != nil {
		return "", err
	}
	if err := g.measure(ctx, f.dir, f.c.most()); err != nil {
		return "", err
	}
	if _, err := g.run(ctx, f.dir, "checkout", "--quiet", "--detach", "--force", "FETCH_HEAD"); err != nil {
		return "", err
	}
	out, err := g.run(ctx, f.dir, "rev-parse", "HEAD")
	commit := strings.TrimSpace(string(out))
	if err == nil && !commitForm.MatchString(commit) {
		err = errors.New("git names no commit")
	}
	return commit, err
}

func (f *fetch) depth() int { return f.src.depth() }

// depth is how many commits of history there are; 0 is all.
func (s *Source) depth() int {
	if s.Depth == 0 {
		return defaultDepth
	}
	return max(s.Depth, 0)
}

// program is git with nothing of the user's.
type program struct {
	path, home string
	env        []string
	limits     group.Limits
	log        io.Writer
	hide       func(string) string
}

func (f *fetch) program(home string) *program {
	return &program{path: f.c.git, home: home, log: f.log, hide: f.hide, limits: f.c.limits(f.c.opts.MaxBytes)}
}

// limits are those of a process of git that writes files of so many bytes.
func (c *Cloner) limits(file int64) group.Limits {
	return group.Limits{CPU: c.opts.CPU, Data: c.opts.Memory, File: file, Files: maxOpen}
}

const maxOpen = 256

// config is all that git is configured with. It is a file that only this user can read, and is removed with its directory: arguments and the environment
// are seen by others, or are not passed on to the process that serves a local repository.
func (g *program) config(f *fetch) error {
	var b strings.Builder
	b.WriteString("[core]\n\thooksPath = /dev/null\n\tfsmonitor = false\n\taskPass = \n\tbigFileThreshold = 16m\n\tdeltaBaseCacheLimit = 32m\n[pack]\n\tthreads = 2\n[fetch]\n\tunpackLimit = 1\n[credential]\n\thelper = \n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[submodule]\n\trecurse = false\n[protocol]\n\tallow = never\n")
	if f.host == "" {
		b.WriteString("[protocol \"file\"]\n\tallow = always\n[safe]\n\tdirectory = *\n") // owners of local repositories are others
	} else {
		fmt.Fprintf(&b, "[protocol \"https\"]\n\tallow = always\n[protocol \"http\"]\n\tallow = always\n[http]\n\tproxy = http://instar:%s@%s\n\tlowSpeedLimit = 1000\n\tlowSpeedTime = 60\n", f.proxySecret, f.proxy)
		if f.secret != (Credential{}) {
			scheme, _, _ := strings.Cut(f.url, ":")
			header := base64.StdEncoding.EncodeToString([]byte(f.secret.Username + ":" + f.secret.Password))
			fmt.Fprintf(&b, "[http \"%s://%s/\"]\n\textraHeader = \"Authorization: Basic %s\"\n", scheme, f.host, header)
			b.WriteString("[http]\n\tfollowRedirects = false\n") // git sends the header to whoever it is sent on to
		}
	}
	path := filepath.Join(g.home, "config")
	g.env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + g.home, "XDG_CONFIG_HOME=" + g.home, "GIT_CONFIG_GLOBAL=" + path, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=/bin/false", "SSH_ASKPASS=/bin/false", "GIT_ALLOW_PROTOCOL=file:http:https", "GIT_LFS_SKIP_SMUDGE=1", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C", "GIT_NO_REPLACE_OBJECTS=1",
	}
	for _, name := range []string{"SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"} { // whom this host trusts
		if v := os.Getenv(name); v != "" {
			g.env = append(g.env, name+"="+v)
		}
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// What is kept of what git answers, and of what it says beside.
const (
	maxAnswer = 1 << 20
	maxSaid   = 64 << 10
)

// run is one call of git. Its error has what git said.
func (g *program) run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	out := head{most: maxAnswer}
	err := g.to(ctx, &out, dir, args...)
	if err == nil && out.cut {
		err = fmt.Errorf("git %s has more to say than is read", args[0])
	}
	return out.Bytes(), err
}

// to is one call of git whose answer goes somewhere.
func (g *program) to(ctx context.Context, out io.Writer, dir string, args ...string) error {
	said := head{most: maxSaid}
	err := (&group.Command{Path: g.path, Args: args, Dir: dir, Env: g.env, Stdout: out, Stderr: &said, Limits: g.limits, Grace: time.Second}).Run(ctx)
	text := strings.TrimSpace(said.String())
	if text != "" && g.log != nil {
		fmt.Fprintln(g.log, g.hide(text))
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	status, _ := exit.Sys().(syscall.WaitStatus)
	switch {
	case status.Signaled() && (status.Signal() == syscall.SIGXCPU || status.Signal() == syscall.SIGXFSZ) || g.limits.CPU > 0 && exit.UserTime()+exit.SystemTime() >= g.limits.CPU:
		return providers.Errorf(providers.LimitExceeded, "git %s needs more than the %s of processor time, or writes more than the %d bytes, that it may have", args[0], g.limits.CPU, g.limits.File)
	case strings.Contains(text, "ut of memory") || strings.Contains(text, "mmap failed"):
		return providers.Errorf(providers.LimitExceeded, "git %s needs more than the %d MiB of memory that it may have", args[0], g.limits.Data>>20)
	}
	return fmt.Errorf("git %s: %s", args[0], lastLine(text, exit.String()))
}

// lastLine is the one that says why.
func lastLine(text, otherwise string) string {
	lines := strings.Split(text, "\n")
	for _, l := range lines {
		if strings.HasPrefix(l, "fatal: ") || strings.HasPrefix(l, "error: ") {
			return l
		}
	}
	if text == "" {
		return otherwise
	}
	return lines[len(lines)-1]
}

// head keeps the beginning of what is written, and takes the rest.
type head struct {
	bytes.Buffer
	most int
	cut  bool
}

func (t *head) Write(p []byte) (int, error) {
	keep := p[:min(len(p), max(t.most-t.Len(), 0))]
	t.cut = t.cut || len(keep) < len(p)
	t.Buffer.Write(keep) // never fails
	return len(p), nil
}
