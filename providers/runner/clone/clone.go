// Package clone keeps checkouts of repositories on this machine.
//
// A checkout is a directory of its own for each commit and depth of history, which is complete when it is there and never changed after; so a fetch that is repeated,
// that runs twice or that comes late harms nobody. Which one is current is decided by when its fetch began. Checkouts that are in use are not removed.
//
// Repositories come over https, http, or from below directories of this machine that the configuration names; nothing else. With git on PATH that is used,
// without the user's configuration, hooks, helpers, prompts and submodules; else go-git, in a process of its own. Both have limits of memory and time, and reach the network only through a
// proxy of this process, on loopback, which goes where the guard admits and bounds what is received. A tree is counted before it is written: a few objects can name files without end. A credential is chosen by the host of the URL; it is in no URL, argument, log line or error.
package clone

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/guard"
)

// Credential is what a host wants to see. Password may be a token.
type Credential struct{ Username, Password string }

// Options say what may be cloned and how. Dir is required.
type Options struct {
	Dir         string                                               // of all checkouts
	Local       []string                                             // directories below which repositories of this machine may be cloned; none by default
	LocalFor    []string                                             // namespaces whose repositories may be such; none is all
	Guard       guard.Guard                                          // where the network may be
	Credentials func(namespace, host string) (c Credential, ok bool) // asked with host or host:port; nil has none
	Group       int                                                  // that may read checkouts; 0 is none besides the user of this process
	MaxBytes    int64                                                // of one checkout with its history; 0 is 2 GiB
	MaxEntries  int64                                                // files and folders of one checkout; 0 is 500,000
	Timeout     time.Duration                                        // of one fetch; 0 is 10 minutes
	Memory      int64                                                // bytes that each process may have which reads a repository; 0 is 1 GiB
	CPU         time.Duration                                        // of processor time of each such process, in whole seconds; 0 is 10 minutes
	Git         string                                               // the program; empty looks on PATH, "-" uses go-git
	Keep        time.Duration                                        // how long an unused checkout stays that is not current; 0 is a day
	New         time.Duration                                        // how long one stays whose repository is not known; 0 is ten minutes
	Total       int64                                                // of all checkouts together: those that were not used for longest go first; 0 is no bound
}

// Source is a repository and what of it is wanted.
type Source struct {
	URL   string // https, http, file, or an absolute path
	Ref   string // branch, tag or commit; empty is the default branch
	Depth int    // commits of history, at least; 0 is 200, less than 0 is all
	Clone uint64 // numbers what was asked to be fetched; what is kept serves a use of its own number, and one of 0. Another node may have fetched since, and a store that was restored counts again from where it was
}

// serves reports whether what was fetched for a source is good for another one.
func (s *Source) serves(other Source) bool {
	deep := s.depth() == 0 || other.depth() > 0 && s.depth() >= other.depth() // else an analysis that wants less would have all others fetch again
	return s.URL == other.URL && s.Ref == other.Ref && deep && (other.Clone == 0 || s.Clone == other.Clone)
}

// defaultDepth is enough to see what changes often, and a fraction of a long history.
const defaultDepth = 200

// Cloner keeps the checkouts of one directory. Only one process may use that at a time.
type Cloner struct {
	opts Options
	git  string // empty is go-git

	mu   sync.Mutex
	busy map[string]*turn // by repository: one fetch at a time
	used map[string]int   // by directory
	size map[string]int64 // the same: bytes of what is there, which does not change
}

// Checkout is a working tree. It must be released.
type Checkout struct {
	Dir     string
	Commit  string
	Fetched bool // it was not there before
	Bytes   int64

	release func()
	cloner  *Cloner
}

// Release says that it is not needed any more. It may be called twice.
func (c *Checkout) Release() { c.release() }

// Open prepares the directory, and removes what fetches have left unfinished.
func Open(opts Options) (*Cloner, error) {
	opts.MaxBytes, opts.Timeout, opts.Keep = cmp.Or(opts.MaxBytes, 2<<30), cmp.Or(opts.Timeout, 10*time.Minute), cmp.Or(opts.Keep, 24*time.Hour)
	opts.New = cmp.Or(opts.New, 10*time.Minute)
	opts.MaxEntries, opts.Memory, opts.CPU = cmp.Or(opts.MaxEntries, 500_000), cmp.Or(opts.Memory, 1<<30), cmp.Or(opts.CPU, 10*time.Minute)
	c := &Cloner{opts: opts, git: opts.Git, busy: map[string]*turn{}, used: map[string]int{}, size: map[string]int64{}}
	if c.git == "" {
		c.git, _ = exec.LookPath("git") // without it go-git clones
	}
	if c.git == "-" {
		c.git = ""
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot keep checkouts: %w", err)
	}
	for i, dir := range opts.Local {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return nil, fmt.Errorf("cannot clone from below %s: %w", dir, err)
		}
		c.opts.Local[i] = real
	}
	left, err := filepath.Glob(filepath.Join(opts.Dir, "*", "*", partial+"*"))
	for _, dir := range left {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return c, err
}

var (
	refForm    = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./+@=-]{0,254}$`)
	commitForm = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)
	placeForm  = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?(-[0-9]+)?$`) // a commit alone was that of any depth once
	nameForm   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
)

// partial begins the names of directories that are not complete.
const partial = ".part-"

// address checks a source of a namespace, and returns the URL that is fetched from. The credential goes a way of its own.
func (c *Cloner) address(namespace string, src *Source) (at string, u *url.URL, err error) {
	if src.Ref != "" && (!refForm.MatchString(src.Ref) || strings.Contains(src.Ref, "..")) {
		return "", nil, providers.Errorf(providers.Invalid, "ref %q is not the name of a branch, a tag or a commit", src.Ref)
	}
	if strings.HasPrefix(src.URL, "/") {
		u = &url.URL{Scheme: "file", Path: src.URL}
	} else if u, err = url.Parse(src.URL); err != nil {
		return "", nil, providers.Errorf(providers.Invalid, "the URL of the repository cannot be read")
	}
	switch {
	case u.User != nil:
		return "", nil, providers.Errorf(providers.Invalid, "the URL of the repository has a user or a password: credentials belong into the configuration of the node")
	case u.Scheme == "file" && u.Host == "":
		path, err := c.local(namespace, u.Path)
		if err != nil {
			return "", nil, err
		}
		u = &url.URL{Scheme: "file", Path: path}
	case (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.RawQuery == "" && u.Fragment == "":
	default:
		return "", nil, providers.Errorf(providers.Invalid, "the URL of the repository is neither https, http nor a path of this node")
	}
	return u.String(), u, nil
}

// local is where a path leads, if that is allowed.
func (c *Cloner) local(namespace, path string) (string, error) {
	real, err := filepath.EvalSymlinks(filepath.Clean(path))
	if len(c.opts.LocalFor) > 0 && !slices.Contains(c.opts.LocalFor, namespace) {
		err = fs.ErrPermission
	}
	inside := func(dir string) bool {
		rel, err := filepath.Rel(dir, real)
		return err == nil && filepath.IsLocal(rel)
	}
	if err != nil || !slices.ContainsFunc(c.opts.Local, inside) { // what else exists is nobody's business
		return "", providers.Errorf(providers.Invalid, "%s is no repository below a directory that the configuration of this node allows to clone from", path)
	}
	return real, nil
}

// Fetch gets what the source has now. name is <namespace>/<repository>, attempt distinguishes attempts. What is said on the way is written to log; nil says it nowhere.
// Errors are those of package providers, or of the context.
func (c *Cloner) Fetch(ctx context.Context, name, attempt string, src Source, log io.Writer) (*Checkout, error) {
	return c.get(ctx, name, attempt, src, log, func(string, Source) *Checkout { return nil })
}

// Use returns the checkout that is current for the source, and fetches one where there is none, or one of another number.
func (c *Cloner) Use(ctx context.Context, name, attempt string, src Source, log io.Writer) (*Checkout, error) {
	return c.get(ctx, name, attempt, src, log, c.kept)
}

// get returns what serves already, or fetches: one at a time of each repository.
func (c *Cloner) get(ctx context.Context, name, attempt string, src Source, log io.Writer, serves func(dir string, src Source) *Checkout) (*Checkout, error) {
	namespace, _, _ := strings.Cut(name, "/")
	at, u, err := c.address(namespace, &src)
	if err != nil {
		return nil, err
	}
	dir, err := c.folder(name)
	if err != nil {
		return nil, err
	}
	if use := serves(dir, src); use != nil {
		return use, nil
	}
	unlock, err := c.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if use := serves(dir, src); use != nil { // it was fetched meanwhile
		return use, nil
	}
	c.sweep(dir)
	return c.fetch(ctx, &fetch{c: c, url: at, host: u.Host, src: src, dir: filepath.Join(dir, partial+folded(attempt)), log: log, secret: c.credential(namespace, u)}, dir)
}

// kept is the checkout that is current, if it serves the source.
func (c *Cloner) kept(dir string, src Source) *Checkout {
	r, err := current(dir)
	if err != nil || !r.Source.serves(src) {
		return nil
	}
	at := place(dir, r.Commit, r.Source.depth())
	use := c.use(at, r.Commit)
	if _, err := os.Stat(at); err != nil {
		use.Release()
		return nil
	}
	return use
}

// fetch makes a checkout below the directory of its repository, and the current one of it.
func (c *Cloner) fetch(ctx context.Context, f *fetch, dir string) (*Checkout, error) {
	began := time.Now()
	if err := errors.Join(os.RemoveAll(f.dir), os.MkdirAll(f.dir, 0o700)); err != nil {
		return nil, providers.Errorf(providers.Internal, "cannot make a directory for the checkout: %v", err)
	}
	defer func() { _ = os.RemoveAll(f.dir) }() // it is renamed, or of no use
	commit, size, err := f.run(ctx)
	if err != nil {
		return nil, f.refusal(ctx, err)
	}
	final := place(dir, commit, f.src.depth())
	use := c.use(final, commit)
	use.Bytes = size
	if _, err := os.Lstat(final); err != nil {
		use.Fetched, err = true, errors.Join(c.share(f.dir, true), os.Rename(f.dir, final))
		if err != nil {
			use.Release()
			return nil, providers.Errorf(providers.Internal, "cannot keep the checkout: %v", err)
		}
	}
	if err := makeCurrent(dir, record{Commit: commit, Source: f.src, Began: began}); err != nil {
		use.Release()
		return nil, providers.Errorf(providers.Internal, "cannot keep the checkout: %v", err)
	}
	c.fit()
	return use, nil
}

// credential is what a host wants to see, if nobody on the way sees it.
func (c *Cloner) credential(namespace string, u *url.URL) Credential {
	if c.opts.Credentials == nil || u.Host == "" || u.Scheme != "https" && !loopback(u.Hostname()) {
		return Credential{}
	}
	secret, _ := c.opts.Credentials(namespace, u.Host)
	return secret
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// refusal is the error as it is told: without secrets, and with whether another try can help.
func (f *fetch) refusal(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var own *providers.Error
	if errors.As(err, &own) {
		return own
	}
	return refused(f.hide(err.Error()))
}

// refused is what a text of git or go-git means.
func refused(text string) error {
	for _, never := range []string{"not found", "Authentication failed", "read askpass response", "invalid path", "authentication required", "could not read Username", "couldn't find remote ref", "does not appear to be a git repository", "remote repository is empty", "not our ref", "may not be connected to", "error: 403", "authorization failed", "reference not found", "object not found", "maximum tree depth exceeded"} {
		if strings.Contains(text, never) {
			return providers.Errorf(providers.Invalid, "cannot clone: %s", text)
		}
	}
	return providers.Errorf(providers.Unavailable, "cannot clone: %s", text)
}

// hide takes the secrets out of a text.
func (f *fetch) hide(text string) string { return hide(text, f.secret, f.proxySecret) }

func hide(text string, secret Credential, more string) string {
	secrets := []string{secret.Password, more}
	if secret != (Credential{}) {
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(secret.Username+":"+secret.Password)))
	}
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "…")
			text = strings.ReplaceAll(text, url.QueryEscape(s), "…")
		}
	}
	return text
}
