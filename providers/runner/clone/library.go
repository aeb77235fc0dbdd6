package clone

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/go-git/go-git/v5/plumbing/transport/client"
	"github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/go-git/go-git/v5/plumbing/transport/server"

	"github.com/bcc94042/instar/providers/runner/analyze"
)

// inProcess has go-git serve local repositories itself: by default it runs git for that, which is not here.
var inProcess = sync.OnceFunc(func() {
	client.InstallProtocol("file", server.NewServer(server.NewFilesystemLoader(osfs.New("/"))))
})

// byLibrary fetches with go-git. From a local repository it gets the whole history.
func (f *fetch) byLibrary(ctx context.Context) (string, error) {
	opts := git.CloneOptions{URL: f.url, SingleBranch: true, Tags: git.NoTags, Depth: f.depth()}
	if f.host == "" {
		inProcess()
		opts.Depth = 0
		if path := strings.TrimPrefix(f.url, "file://"); isWorkTree(path) {
			opts.URL = "file://" + filepath.Join(path, git.GitDirName)
		}
	} else {
		opts.ProxyOptions = transport.ProxyOptions{URL: "http://" + f.proxy, Username: "instar", Password: f.proxySecret}
		if f.secret != (Credential{}) {
			opts.Auth = &http.BasicAuth{Username: f.secret.Username, Password: f.secret.Password}
		}
	}
	var tries []git.CloneOptions
	switch ref := f.src.Ref; {
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
		if repo, err = git.PlainCloneContext(ctx, f.dir, false, &o); err == nil {
			return f.checkedOut(repo)
		}
		if !errors.Is(err, git.NoMatchingRefSpecError{}) && !errors.Is(err, plumbing.ErrReferenceNotFound) {
			break
		}
	}
	return "", err
}

// checkedOut is the commit, after the tree is that of a commit that was asked for.
func (f *fetch) checkedOut(repo *git.Repository) (string, error) {
	if commitForm.MatchString(f.src.Ref) {
		tree, err := repo.Worktree()
		if err == nil {
			err = tree.Checkout(&git.CheckoutOptions{Hash: plumbing.NewHash(f.src.Ref), Force: true})
		}
		if err != nil {
			return "", err
		}
	}
	head, err := repo.Head()
	if err != nil {
		return "", err
	}
	return head.Hash().String(), nil
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
func byLibraryHistory(ctx context.Context, dir string, most int) ([]analyze.Commit, error) {
	repo, err := git.PlainOpen(dir)
	if err != nil {
		return nil, err
	}
	head, err := repo.Head()
	if err != nil {
		return nil, err
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
	var list []analyze.Commit
	for len(list) < min(most, maxStats) && len(open) > 0 && ctx.Err() == nil {
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
				return nil, err
			}
			for _, s := range stats {
				out.Changes = append(out.Changes, analyze.Change{Path: s.Name, Added: s.Addition, Deleted: s.Deletion})
			}
		}
		list = append(list, out)
	}
	return list, ctx.Err()
}
