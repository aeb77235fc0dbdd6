// Package repositories is the demo of tasks: three repositories are cloned and analysed under limits, by a server that is killed meanwhile.
package repositories

// tasksDemo.run goes through the acts, follow draws the board from
// what GET /v1/tasks answers, and judge (judge.go) reads in the events of all tasks what was run when.

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/demo"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/tasks"
)

// Commands show what tasks promise: the demo, and the server that it kills.
func Commands() []*cobra.Command {
	cmd := &cobra.Command{
		Use: "tasks [URL...]", Short: "Repositories are cloned and analysed under limits while the server is killed", Args: cobra.ArbitraryArgs,
		Long: `Makes three repositories with git, or takes those whose URLs are given, and starts a server as a process of its own. It clones
and analyses them, at most two tasks at a time and one of a repository; in the middle the server gets kill -9 and is started again.
One task is canceled while it runs, one fails for good and is redriven. The exit code is 1 when a limit was exceeded, when
an attempt ended twice or never, or when a repository is not completed. Documents are written into a directory that stays.`,
		Example: "  instar demo tasks\n  instar demo tasks --fast\n  instar demo tasks https://github.com/nats-io/nuid",
		RunE: func(cmd *cobra.Command, args []string) error {
			d := &tasksDemo{out: cmd.OutOrStdout(), began: time.Now(), urls: args, commits: 60}
			if fast, _ := cmd.Flags().GetBool("fast"); fast { // declared below
				d.commits = 5
			}
			if f, ok := d.out.(*os.File); ok {
				info, err := f.Stat()
				d.live = err == nil && info.Mode()&os.ModeCharDevice != 0
			}
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().Bool("fast", false, "smaller repositories")
	server := &cobra.Command{Use: "tasks-server DIR LISTEN", Short: "The server of a demo", Hidden: true, Args: command.Arguments("DIR", "LISTEN"), RunE: serve}
	return []*cobra.Command{cmd, server}
}

// serve serves tasks until it is killed.
func serve(cmd *cobra.Command, args []string) error {
	cfg := config.Defaults(config.Dev)
	cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Log.Level = args[0], args[1], "", "error"
	cfg.Outbox.Postgres = config.PostgresOff
	return server.Run(cmd.Context(), cfg, server.Options{
		Machines: []*machines.Machine{repository.Machine, task.Machine, queue.Machine}, Out: cmd.OutOrStdout(),
		Providers: map[string]server.Provider{
			task.Machine.Name: tasks.Provider(tasks.Runner), repository.Machine.Name: tasks.RepositoryProvider(), queue.Machine.Name: tasks.QueueProvider(),
		},
	})
}

// The limits of the demo.
const (
	tasksAtATime = 2
	ofRepository = 1
)

// tasksDemo is one run.
type tasksDemo struct {
	out     io.Writer
	live    bool // out is a terminal: the board is drawn in place
	began   time.Time
	urls    []string
	commits int // of each repository that is made

	dir, listen, url string
	server           *demo.Process
	service          *patience
	names            []string
	drawn            int // lines of the board
	seen             map[string]string
	kills            int
}

func (d *tasksDemo) tell(format string, args ...any) {
	fmt.Fprintf(d.out, "%6.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
	d.drawn = 0
}

func (d *tasksDemo) run(ctx context.Context) (err error) {
	d.seen = map[string]string{}
	if d.dir, err = os.MkdirTemp("", "instar-demo-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	for _, act := range []func(context.Context) error{d.makeRepositories, d.start, d.create, d.analyze, d.cancel, d.redrive, d.finish, d.fetch, d.judge} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *tasksDemo) close() error {
	var err error
	if d.service != nil {
		d.service.close()
	}
	if d.server != nil && d.server.PID() != 0 {
		err = d.server.Kill()
	}
	return errors.Join(err, os.RemoveAll(filepath.Join(d.dir, "data")), os.RemoveAll(filepath.Join(d.dir, "origin")))
}

//go:embed origin.sh
var originScript string // of a directory, a name and a number of commits

// makeRepositories makes three with git, with a history.
func (d *tasksDemo) makeRepositories(ctx context.Context) error {
	for i := range d.urls {
		d.names = append(d.names, fmt.Sprintf("given-%d", i+1))
	}
	if len(d.urls) > 0 {
		return nil
	}
	d.tell("making three repositories with git, of %d commits each", d.commits)
	for _, name := range []string{"shop", "billing", "web"} {
		dir := filepath.Join(d.dir, "origin", name)
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", originScript, dir, name, fmt.Sprint(d.commits)) // #nosec G204 -- our own words
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot make a repository with git: %w: %s", err, out)
		}
		d.names, d.urls = append(d.names, name), append(d.urls, dir)
	}
	return nil
}

// start starts the server, again or for the first time.
func (d *tasksDemo) start(ctx context.Context) error {
	if d.url == "" {
		address, err := demo.FreeAddress()
		if err != nil {
			return err
		}
		d.listen, d.url = address, "http://"+address
	}
	log := filepath.Join(d.dir, "server.log")
	server, err := demo.Start(log, nil, "demo", "tasks-server", filepath.Join(d.dir, "data"), d.listen)
	if err != nil {
		return err
	}
	d.server = server
	if err := demo.Await(ctx, "the server", func() error { return d.Ask(ctx, http.MethodGet, "/readyz", nil, nil) }); err != nil {
		return fmt.Errorf("%w: %s", err, demo.LastWords(log))
	}
	d.tell("the server runs as process %d", d.server.PID())
	return nil
}

func (d *tasksDemo) Ask(ctx context.Context, method, path string, body, into any) error {
	return demo.Ask(ctx, method, d.url+path, body, into)
}

// post tries again while the server is not ready for it, or, asked for many tasks, has not asked for all.
func (d *tasksDemo) post(ctx context.Context, path string, body any) error {
	return demo.Await(ctx, path, func() error {
		var out struct{ Incomplete bool }
		if err := d.Ask(ctx, http.MethodPost, path, body, &out); err != nil || !out.Incomplete {
			return err
		}
		return errors.New("the answer is incomplete")
	})
}

var tasksAnalyses = []string{"dependencies", "hotspots", "languages", "licences", "lines", "secrets", "structure"}

func (d *tasksDemo) create(ctx context.Context) error {
	if err := d.post(ctx, "/v1/queues/"+queue.Cluster+"/configure", queue.Settings{Limit: tasksAtATime}); err != nil {
		return err
	}
	for i, name := range d.names {
		if err := d.post(ctx, "/v1/repositories/"+name+"/create", repository.Spec{URL: d.urls[i], Analyses: tasksAnalyses, Concurrency: ofRepository}); err != nil {
			return err
		}
	}
	d.tell("%d repositories, each with %d analyses; at most %d tasks run at a time, and %d of a repository", len(d.names), len(tasksAnalyses), tasksAtATime, ofRepository)
	return d.follow(ctx, "all are cloned", func(b board) bool { return b.count("clone", task.Succeeded) == len(d.names) })
}

// analyze runs all, and kills the server in the middle.
func (d *tasksDemo) analyze(ctx context.Context) error {
	for _, name := range d.names {
		if err := d.post(ctx, "/v1/repositories/"+name+"/run-all", map[string]any{}); err != nil {
			return err
		}
	}
	most := len(d.names) * len(tasksAnalyses)
	if err := d.follow(ctx, "some are done", func(b board) bool { return b.count("", task.Succeeded) >= len(d.names)+most/4 }); err != nil {
		return err
	}
	if err := d.server.Kill(); err != nil {
		return err
	}
	d.kills++
	d.tell("kill -9 of the server; started again")
	if err := d.start(ctx); err != nil {
		return err
	}
	return d.follow(ctx, "all are done", func(b board) bool { return b.count("", task.Succeeded) >= len(d.names)+most })
}

// patience is a service that the tasks of the demo call: one request waits for ever, others are refused until it is back.
type patience struct {
	server  *http.Server
	address string
	came    chan struct{}
}

func (p *patience) open() error {
	l, err := net.Listen("tcp", p.address)
	if err != nil {
		return err
	}
	p.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/wait" {
			_, _ = io.WriteString(w, "it is back\n") // the demo fails otherwise
			return
		}
		select {
		case p.came <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	})}
	go func() { _ = p.server.Serve(l) }() // until close
	return nil
}

func (p *patience) close() {
	if p.server != nil {
		_ = p.server.Close() // nobody waits for an answer
		p.server = nil
	}
}

// cancel cancels a task that waits for an answer.
func (d *tasksDemo) cancel(ctx context.Context) (err error) {
	d.service = &patience{came: make(chan struct{}, 1)}
	if d.service.address, err = demo.FreeAddress(); err != nil {
		return err
	}
	if err := d.service.open(); err != nil {
		return err
	}
	at := "/v1/repositories/" + d.names[0] + "/tasks/waits"
	if err := d.post(ctx, at+"/create", call("http://"+d.service.address+"/wait", 1)); err != nil {
		return err
	}
	select {
	case <-d.service.came:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := d.post(ctx, at+"/cancel", nil); err != nil {
		return err
	}
	d.service.close()
	d.tell("a task that runs was canceled")
	return d.follow(ctx, "it is canceled", func(b board) bool { return b[d.names[0]+".waits"] == task.Canceled })
}

// call is a task that sends a request.
func call(url string, attempts int) task.CreateBody {
	params := fmt.Appendf(nil, `{"url":%q}`, url)
	return task.CreateBody{Spec: task.Spec{Type: "http", Params: params, Attempts: attempts, Backoff: "100ms", Optional: true}, Run: true}
}

// redrive has a task fail for good, and runs it again when what it needs is there.
func (d *tasksDemo) redrive(ctx context.Context) error {
	name := d.names[len(d.names)-1]
	at := "/v1/repositories/" + name + "/tasks/calls"
	if err := d.post(ctx, at+"/create", call("http://"+d.service.address+"/", 2)); err != nil {
		return err
	}
	if err := d.follow(ctx, "it fails for good", func(b board) bool { return b[name+".calls"] == task.Failed }); err != nil {
		return err
	}
	d.tell("a task failed for good, after two attempts: the service that it calls is away")
	if err := d.service.open(); err != nil {
		return err
	}
	if err := d.post(ctx, at+"/retry", task.RunBody{}); err != nil {
		return err
	}
	if err := d.follow(ctx, "it succeeds", func(b board) bool { return b[name+".calls"] == task.Succeeded }); err != nil {
		return err
	}
	d.tell("the service is back, and the task was redriven: it succeeded")
	return nil
}

// finish waits for the states of the repositories.
func (d *tasksDemo) finish(ctx context.Context) error {
	for _, name := range d.names {
		if err := demo.Await(ctx, "repository "+name, func() error {
			var e struct{ State string }
			err := d.Ask(ctx, http.MethodGet, "/v1/repositories/"+name, nil, &e)
			if err == nil && e.State != repository.Completed {
				err = errors.New("it is " + e.State)
			}
			return err
		}); err != nil {
			return err
		}
	}
	d.tell("all repositories are %s", repository.Completed)
	return nil
}

// fetch copies the documents out of the object store.
func (d *tasksDemo) fetch(ctx context.Context) error {
	n := 0
	for _, name := range d.names {
		for _, id := range tasksAnalyses {
			at, of := "/v1/tasks/"+id, "?repository="+name
			var list struct{ Documents []task.Document }
			if err := d.Ask(ctx, http.MethodGet, at+"/documents"+of, nil, &list); err != nil {
				return err
			}
			for _, doc := range list.Documents {
				file := doc.Name[strings.LastIndexByte(doc.Name, '/')+1:]
				var text []byte
				if err := d.Ask(ctx, http.MethodGet, at+"/document"+of+"&name="+file, nil, &text); err != nil {
					return err
				}
				to := filepath.Join(d.dir, "documents", name)
				if err := os.MkdirAll(to, 0o700); err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(to, file), text, 0o600); err != nil {
					return err
				}
				n++
			}
		}
	}
	if least := len(d.names) * len(tasksAnalyses) * 2; n < least {
		return fmt.Errorf("there are %d documents, %d were expected", n, least)
	}
	d.tell("%d documents lie below %s, copied from the bucket %s", n, filepath.Join(d.dir, "documents"), task.DocumentBucket)
	return nil
}
