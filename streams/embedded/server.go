package embedded

// The life of the embedded server. Start locks and marks the directory, translates Options for nats-server (options, with accounts.go and cluster.go) and starts it, and the
// barrier (barrier.go). Clients connect by InProcessConn or LoopbackURL; Health and Restart are for whoever watches the disk (store.go), and Shutdown stops everything and
// unlocks.

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/renew"
	"github.com/bcc94042/instar/streams"
)

// Options configure the embedded server.
type Options struct {
	Dir      string // data directory; the server's files are in nats/ below it
	Listen   string // host:port for NATS clients; empty listens nowhere
	Profile  Profile
	Users    []User // who may use Listen, beside the program itself
	Open     bool   // Listen takes everybody, who may do everything; not with Users
	TLSCert  string // files, both or none
	TLSKey   string
	MaxStore int64           // bytes of all streams; 0 is what they have and what is left of the disk, at any time
	Names    streams.Names   // of the streams, of which some are synced before others
	Name     string          // of a member of a cluster, which keeps it for ever; a single server is called instar
	Cluster  *ClusterOptions // nil is a single server
	Log      *slog.Logger

	syncEvery time.Duration                              // under Interval; 0 is syncInterval
	space     func(string) (free, size int64, err error) // nil is DiskSpace
	patience  time.Duration                              // 0 is patience
	stacks    func() string                              // nil is goroutines
}

// Server is an embedded NATS server that owns a directory.
type Server struct {
	o        Options
	lock     *os.File
	user     string // the program's own user, when there are users
	password string

	barrier *barrier // nil: the streams are synced by timers of their own, or with each write
	flusher *flusher // nil: they are not synced in groups
	ends    ends     // of the streams, when the server started

	mu     sync.Mutex
	srv    *server.Server
	listen string // host:port, as in the options until a port is chosen

	look  sync.Mutex // one check of the store at a time
	used  int64      // as of the last check
	stuck bool       // for good, as of the last check
}

// modeStandalone marks a directory whose streams a clustered server would delete as orphans after half a minute.
const modeStandalone = "standalone\n"

// Start locks the directory and starts the server. It refuses a directory that another process holds and one
// that was written in another mode.
func Start(o Options) (*Server, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("streams: cannot make the data directory: %w", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, err
	}
	if o.Cluster != nil && o.Listen == "" { // members meet only when they have a listener for clients: one that nobody else may use
		o.Listen, o.Open, o.Users = "127.0.0.1:0", false, nil
	}
	if o.space == nil {
		o.space = DiskSpace
	}
	if o.stacks == nil {
		o.stacks = goroutines
	}
	s := &Server{o: o, lock: lock, listen: o.Listen}
	for _, u := range o.Users {
		if err := u.Check(o.Names); err != nil {
			return nil, errors.Join(fmt.Errorf("streams: user %q %w", u.Name, err), lock.Close())
		}
	}
	if o.Listen != "" && (!o.Open || len(o.Users) > 0) {
		s.user, s.password = "instar-"+rand.Text(), rand.Text()
	}
	if err := checkMode(o.Dir, o.modeOf()); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	s.barrier, s.flusher = o.barrier(), s.newFlusher()
	if err := errors.Join(o.afterOutage(), s.start()); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if s.barrier != nil {
		s.barrier.begin(s.barrier.every, nil, func() bool { s.barrier.round(s.running()); return true })
	}
	if s.flusher != nil {
		s.flusher.begin(flushEvery, s.flusher.first, func() bool { return s.flusher.sweep(time.Now()) })
	}
	return s, nil
}

func (o *Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

// barrier returns what syncs the streams of a single server together; nil leaves that to the server. What a member of a cluster has agreed to is in its Raft logs, and in other
// members.
func (o *Options) barrier() *barrier {
	if o.Profile != Interval || o.Cluster != nil {
		return nil
	}
	where, err := provenStores()
	if err != nil {
		o.log().Warn("the streams cannot be synced together: a power loss may lose more of some than of others", "error", err)
		return nil
	}
	return &barrier{where: where, dir: o.streamsDir(), commands: o.Names.Stream(streams.CommandStream), every: cmp.Or(o.syncEvery, syncInterval), log: o.log()}
}

// Acking is held while a command is acked whose entity was just written: where streams are synced at intervals, no ack is to be on disk without that entity. It is nil where
// nothing needs to be held, for lack of such intervals.
func (s *Server) Acking() sync.Locker {
	if s.barrier == nil {
		return nil
	}
	return s.barrier.acks.RLocker()
}

func (s *Server) running() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.srv
}

// lockDir takes the lock that lives as long as the process: nats-server has none, and two would serve one store.
func lockDir(dir string) (*os.File, error) {
	path := filepath.Join(dir, "instar.lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("streams: cannot open the lock of the data directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path) // only for the message
		return nil, errors.Join(fmt.Errorf("streams: data directory %s is in use by process %s: stop it, or choose another one with --data", dir, strings.TrimSpace(string(holder))), f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil && !IsFull(err) { // a full disk is no reason not to serve reads
		return nil, errors.Join(fmt.Errorf("streams: cannot write the lock of the data directory: %w", err), f.Close())
	}
	return f, nil
}

func checkMode(dir, mode string) error {
	path := filepath.Join(dir, "mode")
	have, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && len(have) == 0: // empty: the disk was full when it was made
		if err := os.WriteFile(path, []byte(mode), 0o600); err != nil {
			return fmt.Errorf("streams: cannot mark the data directory: %w", err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("streams: cannot read the mode of the data directory: %w", err)
	case string(have) != mode:
		return wrongMode(dir, string(have), mode)
	}
	return nil
}

func (s *Server) start() error {
	opts, err := s.options()
	if err != nil {
		return err
	}
	if s.o.Profile != OS { // what a process before has written and not synced would be taken for stored, also by the members of a cluster and where each write is synced
		slow := time.AfterFunc(5*time.Second, func() {
			s.o.log().Warn("the file system of the data directory is synced before the start; what other programs have written to it is waited for, too", "dir", opts.StoreDir)
		})
		err := syncFiles(opts.StoreDir)
		if slow.Stop(); err != nil {
			return err
		}
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return fmt.Errorf("streams: cannot configure the embedded NATS server: %w", err)
	}
	log := &serverLog{log: s.o.Log, fatal: make(chan string, 1), plain: slices.ContainsFunc(s.o.Users, func(u User) bool { return !strings.HasPrefix(u.Password, "$2") })}
	srv.SetLoggerV2(log, false, false, false)
	go srv.Start()
	for range 600 {
		select {
		case reason := <-log.fatal:
			srv.Shutdown()
			return fmt.Errorf("streams: the embedded NATS server cannot start: %s", reason)
		default:
		}
		if srv.ReadyForConnections(100 * time.Millisecond) {
			s.mu.Lock()
			s.srv = srv
			if a := srv.Addr(); a != nil && s.listen != "" {
				s.listen = a.String() // a port that was chosen stays the same over restarts
			}
			s.mu.Unlock()
			s.note(srv)
			return nil
		}
	}
	srv.Shutdown()
	return errors.New("streams: the embedded NATS server was not ready within 60 s")
}

func (s *Server) options() (*server.Options, error) {
	listen := s.listener()
	opts := &server.Options{
		ServerName: s.o.name(), StoreDir: filepath.Join(s.o.Dir, "nats"), JetStream: true, NoSigs: true, NoLog: true,
		DontListen: listen == "", JetStreamMaxStore: unlimited, JetStreamMaxMemory: 256 << 20, MaxPayload: streams.MaxMessage,
		PingInterval: 20 * time.Second, WriteDeadline: 10 * time.Second, DisableJetStreamBanner: true,
	}
	switch s.o.Profile {
	case Fsync:
		opts.SyncAlways = true
	case Interval:
		opts.SyncInterval = syncInterval
		if s.barrier != nil {
			opts.SyncInterval = max(opts.SyncInterval, backstop)
		}
	}
	if listen != "" {
		host, port, err := net.SplitHostPort(listen)
		if err != nil {
			return nil, fmt.Errorf("streams: NATS listener %q is not host:port: %w", listen, err)
		}
		opts.Host = host
		if opts.Port, err = strconv.Atoi(port); err != nil || opts.Port < 0 || opts.Port > 65535 {
			return nil, fmt.Errorf("streams: NATS listener %q has no port between 0 and 65535", listen)
		}
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT
		}
	}
	if s.o.TLSCert != "" {
		own, err := renew.Load(s.o.TLSCert, s.o.TLSKey, s.o.Log)
		if err != nil {
			return nil, fmt.Errorf("streams: cannot load the certificate of the NATS listener: %w", err)
		}
		tc := &tls.Config{MinVersion: tls.VersionTLS12}
		own.Serve(tc)
		opts.TLSConfig, opts.TLS = tc, true // the program itself connects in process, which needs none
	}
	if err := s.guard(opts); err != nil {
		return nil, err
	}
	if s.o.Cluster != nil {
		return opts, s.o.Cluster.apply(opts, s.o.Log)
	}
	return opts, nil
}

// InProcessConn connects to the server that runs now; it makes Server a nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) {
	srv := s.running()
	if srv == nil {
		return nil, errors.New("streams: the embedded NATS server is restarting")
	}
	return srv.InProcessConn()
}

// ClientURL is where NATS clients connect, or empty when the server does not listen.
func (s *Server) ClientURL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv == nil || s.listen == "" {
		return ""
	}
	return s.srv.ClientURL()
}

// Credentials are what the program itself connects with, or empty where everybody may. They are of this start only.
func (s *Server) Credentials() (user, password string) {
	if s == nil {
		return "", ""
	}
	return s.user, s.password
}

func (s *Server) listener() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listen
}

// LoopbackURL is where the program itself connects over TCP, or empty when it has to connect in process. In process
// every write waits for its reader, which costs a quarter more CPU when many transitions are under way than a socket
// with its buffers.
func (s *Server) LoopbackURL() string {
	listen := s.listener()
	if listen == "" || s.o.TLSCert != "" {
		return ""
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "nats://" + net.JoinHostPort(host, port)
}

// Restart stops the server and starts it again on the same directory. Clients reconnect. A single-replica stream
// whose disk was full stays dead until this is done. It fails with [ErrStuck] where only another process helps.
func (s *Server) Restart() error {
	if err := s.stop(); err != nil {
		return err
	}
	return s.start()
}

// Health is why the server's store does not work, or nil. A stream that could not be written once, as on a full disk,
// takes no writes any more until [Server.Restart], whatever the others do. See [Server.Store] for ErrStuck and ErrSlow.
func (s *Server) Health() error {
	srv := s.running()
	if srv == nil {
		return errors.New("streams: the embedded NATS server is restarting")
	}
	return s.within(func() error {
		// Of a member only its own store is checked, which a full disk switches off: streams that lack a leader are no reason to restart a server.
		if h := srv.Healthz(&server.HealthzOptions{JSEnabledOnly: s.o.Cluster != nil}); h.Error != "" {
			return fmt.Errorf("streams: %s", h.Error)
		}
		return nil
	})
}

// stop returns when the server has ended, however long that takes, or [ErrStuck].
func (s *Server) stop() error {
	s.mu.Lock()
	srv := s.srv
	s.srv = nil
	s.mu.Unlock()
	if srv == nil {
		return nil
	}
	go func() {
		if s.o.Cluster != nil {
			srv.LameDuckShutdown() // does nothing for a server that does not listen
		}
		srv.Shutdown()
	}()
	err := ErrSlow
	for errors.Is(err, ErrSlow) {
		err = s.within(func() error { srv.WaitForShutdown(); return nil })
	}
	return err
}

// Shutdown stops the server and unlocks the directory.
func (s *Server) Shutdown(context.Context) error {
	if s.barrier != nil {
		s.barrier.stop(s.running())
	}
	if s.flusher != nil {
		s.flusher.end()
	}
	err := s.stop()
	if err == nil && s.o.Cluster == nil { // also what was acknowledged and not asked for
		if err = syncFiles(filepath.Join(s.o.Dir, "nats")); err == nil {
			err = stopped(s.o.Dir)
		}
	}
	return errors.Join(err, s.lock.Close())
}
