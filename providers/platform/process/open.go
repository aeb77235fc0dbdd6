package process

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/process"
	"github.com/bcc94042/instar/providers/process/builtin"
	"github.com/bcc94042/instar/providers/process/cgroup"
)

// Config is what [Open] needs. Dir and Versions have no default.
type Config struct {
	Dir                 string                 // of all tenants; created, readable by the owner only
	Host                string                 // IP address of the sockets; 127.0.0.1 when empty
	Ports               process.Ports          // of the sockets; the system chooses when it is zero
	Versions            map[string]app.Program // by lower case letters, digits, and ._- within; each has a command, which is looked up in PATH once, by Open
	Env                 map[string]string      // that Deploy gets for every release: like those of versions, its values are in no message and no line that is told
	Limits              builtin.Limits         // of each process; 1024 open files when zero
	FirstUser, LastUser int                    // that tenants get, one each but the last, under which those of the others are ended; this server has to be root. Processes are its own user's when they are zero
	Health              string                 // path that a live release answers with a status below 400; / when empty
	Startup             time.Duration          // until it has to answer; 60 s when 0, at most an hour
	Hung                time.Duration          // one that has not answered for so long is ended, and started anew; Startup when 0
	Grace               time.Duration          // between SIGTERM and SIGKILL; 10 s when 0
	Self                []string               // as of providers/process
	Log                 *slog.Logger
}

var (
	_ app.Bounding = (*Apps)(nil)
	_ app.Logging  = (*Apps)(nil)
)

// Apps are the releases of all tenants on this machine.
type Apps struct {
	gateway *process.Gateway
	config  Config
	tenants app.Homes
	kernel  cgroup.Kernel
	missing map[string]error // of controllers that there are not
	homes   sync.Mutex       // what is written into the directory of a release, and when that is removed
	before  map[string]int64 // sizes of the logs that were there when it was opened, by path
	values  []string         // of the configuration, that are not told
}

// Open takes up what an earlier server left running. It fails when another one has the directory.
func Open(c Config) (*Apps, error) {
	dir, err := filepath.Abs(c.Dir)
	if c.Dir == "" || err != nil {
		return nil, fmt.Errorf("applications of tenants need a directory, not %q: %w", c.Dir, cmp.Or(err, os.ErrInvalid))
	}
	c.Dir, c.Host, c.Health, c.Startup = dir, cmp.Or(c.Host, "127.0.0.1"), cmp.Or(c.Health, "/"), cmp.Or(c.Startup, time.Minute)
	c.Hung, c.Log = cmp.Or(c.Hung, c.Startup), cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.Limits.Files = cmp.Or(c.Limits.Files, 1024)
	c.Limits.NoPrivileges, c.Limits.NoMemoryDumps, c.Limits.From = true, true, filepath.Join("..", limitsName) // of the working directory, which is the release's
	if err := builtin.CanApart(); err == nil {
		c.Limits.Apart = true
	} else {
		c.Log.Info("releases of tenants share System V IPC with all programs of this host, as this server can give them no namespaces", "error", err)
	}
	releases := filepath.Join(dir, "releases")
	if c.LastUser > 0 {
		if err := reachable(releases); err != nil {
			return nil, err
		}
	}
	templates := make(map[string]process.Template, len(c.Versions))
	for version, p := range c.Versions {
		t := process.Template{Command: p.Command, Env: p.Env, Socket: process.SocketPublic, Home: true, Limits: c.Limits, Hung: c.Hung}
		if p.Port {
			t.Socket = process.SocketPort
		}
		templates[version] = t
	}
	g, err := process.Open(process.Config{
		Dir: releases, Host: c.Host, Ports: c.Ports, Templates: templates, Earlier: process.SocketPublic, NoBuiltins: true, Grace: c.Grace, Self: c.Self, Log: c.Log,
		Logs: func(namespace, release string) string { return logsOf(dir, namespace, tenantOf(release)) },
	})
	if err != nil {
		return nil, fmt.Errorf("cannot run applications of tenants: %w", err)
	}
	a := &Apps{gateway: g, config: c, before: map[string]int64{}, values: app.Configured(c.Env, c.Versions)}
	for _, l := range g.Logs() {
		if info, err := os.Stat(l.Path); err == nil {
			a.before[l.Path] = info.Size()
		}
	}
	a.kernel, a.missing = cgroup.Probe("/sys/fs/cgroup")
	a.tenants = app.Homes{Dir: filepath.Join(dir, "tenants"), First: c.FirstUser, Last: max(c.LastUser-1, 0), End: a.end}
	return a, nil
}

// Close ends the supervision. With stop, all processes are ended first, and started again by the next Open; else they run on.
func (a *Apps) Close(stop bool) error { return a.gateway.Close(stop) }

// Kind is its name in the configuration.
func (a *Apps) Kind() string { return "process" }

// Host is where releases listen.
func (a *Apps) Host() string { return a.config.Host }

// Has reports whether a version can be run.
func (a *Apps) Has(version string) bool {
	_, ok := a.config.Versions[version]
	return ok
}
