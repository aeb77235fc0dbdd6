package clone

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/client"
	"github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/plumbing/transport/server"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/runner/analyze"
	"github.com/bcc94042/instar/providers/runner/child"
	"github.com/bcc94042/instar/providers/runner/usage"
)

// inProcess has go-git serve local repositories itself: by default it runs git for that, which is not here.
var inProcess = sync.OnceFunc(func() {
	client.InstallProtocol("file", server.NewServer(server.NewFilesystemLoader(osfs.New("/"))))
})

// library is a fetch by go-git, as its own process is told it.
type library struct {
	URL, Dir           string
	Local              bool
	Source             Source
	Depth              int
	Secret             Credential
	Proxy, ProxySecret string
	Most               usage.Of
}

const childName = "clone"

func init() {
	child.Do(childName, func(ctx context.Context, l library) (string, error) {
		commit, err := l.fetch(ctx)
		var own *providers.Error
		switch {
		case err == nil || errors.As(err, &own):
		case errors.Is(err, syscall.EFBIG):
			err = tooLarge(l.Most)
		default:
			err = refused(hide(err.Error(), l.Secret, l.ProxySecret))
		}
		return commit, err
	})
}

// byLibrary fetches with go-git, in a process of its own.
func (f *fetch) byLibrary(ctx context.Context) (commit string, err error) {
	o := &f.c.opts
	run := child.Command{Name: childName, Limits: child.Limits{Memory: o.Memory, CPU: o.CPU, File: o.MaxBytes, Files: maxOpen}}
	err = run.Run(ctx, library{
		URL: f.url, Dir: f.dir, Local: f.host == "", Source: f.src, Depth: f.depth(), Secret: f.secret, Proxy: f.proxy, ProxySecret: f.proxySecret,
		Most: f.c.most(),
	}, &commit)
	return commit, err
}

// fetch gets the commit. From a local repository it gets the whole history.
func (f *library) fetch(ctx context.Context) (string, error) {
	opts := git.CloneOptions{URL: f.URL, SingleBranch: true, Tags: git.NoTags, Depth: f.Depth, NoCheckout: true}
	if f.Local {
		inProcess()
		opts.Depth = 0
		if path := strings.TrimPrefix(f.URL, "file://"); isWorkTree(path) {
			opts.URL = "file://" + filepath.Join(path, git.GitDirName)
		}
	} else {
		opts.ProxyOptions = transport.ProxyOptions{URL: "http://" + f.Proxy, Username: "instar", Password: f.ProxySecret}
		if f.Secret != (Credential{}) {
			opts.Auth = &http.BasicAuth{Username: f.Secret.Username, Password: f.Secret.Password}
		}
	}
	var tries []git.CloneOptions
	switch ref := f.Source.Ref; {
	case commitForm.MatchString(ref): // it may be on any branch
		opts.SingleBranch, opts.Depth = false, 0
		tries = append(tries, opts)
	case ref == "":
		tries = append(tries, opts)
	default:
		for _, name := range []plumbing.ReferenceName{plumbing.NewBranchReferenceName(ref), plumbing.NewTagReferenceName(ref)} {
			opts.ReferenceName = name
			tries = append(tries, opts)
		}
	}
	var err error
	for _, o := range tries {
		var repo *git.Repository
		if repo, err = git.PlainCloneContext(ctx, f.Dir, false, &o); err == nil {
			return f.checkOut(repo)
		}
		if !errors.Is(err, git.NoMatchingRefSpecError{}) && !errors.Is(err, plumbing.ErrReferenceNotFound) {
			break
		}
	}
	return "", err
}

// checkOut writes the tree of the commit that was asked for, after it was counted.
func (f *library) checkOut(repo *git.Repository) (string, error) {
	hash := plumbing.NewHash(f.Source.Ref)
	if !commitForm.MatchString(f.Source.Ref) {
		head, err := repo.Head()
		if err != nil {
			return "", err
		}
		hash = head.Hash()
	}
	commit, err := repo.CommitObject(hash)
	if err != nil {
		return "", err
	}
	if err := f.measure(repo, commit); err != nil {
		return "", err
	}
	tree, err := repo.Worktree()
	if err != nil {
		return "", err
	}
	return hash.String(), tree.Checkout(&git.CheckoutOptions{Hash: hash, Force: true})
}

// measure counts what the commit names.
func (f *library) measure(repo *git.Repository, commit *object.Commit) error {
	c := &census{most: f.Most}
	_, err := c.weigh(repo, commit.TreeHash, map[plumbing.Hash]weight{}, 0)
	return err
}

// weight is what a tree names, with all below it.
type weight struct {
	usage.Of
	longest int // path
}

// maxDepth is that of folders in folders: more do not fit in a path that has to be written.
const maxDepth = maxPath / 2

// weigh counts a tree. One that is named many times is read once.
func (c *census) weigh(repo *git.Repository, hash plumbing.Hash, known map[plumbing.Hash]weight, deep int) (weight, error) {
	if w, ok := known[hash]; ok {
		return w, nil
	}
	tree, err := repo.TreeObject(hash)
	if err != nil {
		return weight{}, err
	}
	var all weight
	for _, e := range tree.Entries {
		var w weight
		switch {
		case deep > maxDepth:
			w.longest = maxPath
		case e.Mode == filemode.Dir:
			w, err = c.weigh(repo, e.Hash, known, deep+1)
		case e.Mode.IsFile():
			w.Bytes, err = repo.Storer.EncodedObjectSize(e.Hash)
		}
		if err != nil {
			return all, err
		}
		all.Bytes, all.Entries, all.longest = all.Bytes+w.Bytes, all.Entries+w.Entries+1, max(all.longest, len(e.Name)+1+w.longest)
		if err := c.fits(all.Of, all.longest-1); err != nil {
			return all, err
		}
	}
	known[hash] = all
	return all, nil
}

func isWorkTree(path string) bool {
	repo, err := git.PlainOpen(path)
	if err != nil {
		return false
	}
	_, err = repo.Worktree()
	return err == nil
}

// maxStats is how many commits go-git compares: it takes a hundred times as long as git.
const maxStats = 500

// byLibraryHistory reads the history with go-git. Merges count nothing, as with git.
func byLibraryHistory(ctx context.Context, dir string, most int, each func(analyze.Commit)) (cut bool, err error) {
	repo, err := git.PlainOpen(dir)
	if err != nil {
		return false, err
	}
	head, err := repo.Head()
	if err != nil {
		return false, err
	}
	// An iterator of the library ends with an error before the last commit of a shallow history, whose parents are not there.
	var open []*object.Commit
	seen := map[plumbing.Hash]bool{}
	reach := func(h plumbing.Hash) {
		if c, err := repo.CommitObject(h); err == nil && !seen[h] {
			seen[h], open = true, append(open, c)
		}
	}
	reach(head.Hash())
	n := 0
	for ; n < min(most, maxStats) && len(open) > 0 && ctx.Err() == nil; n++ {
		slices.SortFunc(open, func(a, b *object.Commit) int { return a.Committer.When.Compare(b.Committer.When) })
		c := open[len(open)-1]
		open = open[:len(open)-1]
		for _, h := range c.ParentHashes {
			reach(h)
		}
		out := analyze.Commit{Hash: c.Hash.String(), When: c.Author.When, Author: c.Author.Email}
		if c.NumParents() < 2 {
			stats, err := c.StatsContext(ctx)
			if errors.Is(err, plumbing.ErrObjectNotFound) || errors.Is(err, object.ErrParentNotFound) {
				stats = nil
			} else if err != nil {
				return false, err
			}
			for _, s := range stats {
				out.Changes = append(out.Changes, analyze.Change{Path: s.Name, Added: s.Addition, Deleted: s.Deletion})
			}
		}
		each(out)
	}
	return len(open) > 0, ctx.Err()
}
