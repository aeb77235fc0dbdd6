package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// lockedEnv makes the test binary try a data directory and print what comes of it.
const lockedEnv = "INSTAR_TEST_LOCKED_DIR"

func TestADirectoryHasOneServer(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(lockedEnv); dir != "" {
		s, err := Start(Options{Dir: dir, Profile: OS})
		fmt.Println("second start:", err)
		if err == nil {
			_ = s.Shutdown(context.Background())
		}
		return
	}
	dir := t.TempDir()
	s, err := Start(Options{Dir: dir, Profile: OS})
	require.NoError(t, err)
	want := fmt.Sprintf("streams: data directory %s is in use by process %d: stop it, or choose another one with --data", dir, os.Getpid())
	_, err = Start(Options{Dir: dir, Profile: OS})
	require.EqualError(t, err, want)

	other := func() string {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestADirectoryHasOneServer$")
		cmd.Env = append(os.Environ(), lockedEnv+"="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	require.Contains(t, other(), "second start: "+want)
	require.NoError(t, s.Shutdown(context.Background()))
	require.Contains(t, other(), "second start: <nil>", "the directory is free again")
}

func TestAnotherModeIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mode"), []byte("cluster blue\n"), 0o600))
	_, err := Start(Options{Dir: dir, Profile: OS})
	require.EqualError(t, err, "streams: data directory "+dir+` was written by a member of the cluster blue, and this is the start of a single server: a server in another mode would delete its streams within half a minute. Start it as it was, or use an empty directory and bring the data over with nats stream backup and restore`)
	require.NoDirExists(t, filepath.Join(dir, "nats"))
	_, err = Start(Options{Dir: dir, Profile: OS})
	require.ErrorContains(t, err, "cluster blue", "the lock was given back")

	// A disk that was full at the first start leaves an empty file.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mode"), nil, 0o600))
	s, err := Start(Options{Dir: dir, Profile: OS})
	require.NoError(t, err)
	require.NoError(t, s.Shutdown(context.Background()))
	mode, err := os.ReadFile(filepath.Join(dir, "mode"))
	require.NoError(t, err)
	require.Equal(t, "standalone\n", string(mode))
}

func TestProfilesReachTheServer(t *testing.T) {
	t.Parallel()
	for _, p := range []Profile{Fsync, Interval, OS} {
		parsed, err := ParseProfile(string(p))
		require.NoError(t, err)
		require.Equal(t, p, parsed)
		s := Server{o: Options{Dir: "/somewhere", Profile: p, MaxStore: 77}}
		o, err := s.options()
		require.NoError(t, err)
		require.Equal(t, p == Fsync, o.SyncAlways)
		require.Equal(t, p == Interval, o.SyncInterval == syncInterval)
		require.Equal(t, filepath.Join("/somewhere", "nats"), o.StoreDir)
		require.EqualValues(t, unlimited, o.JetStreamMaxStore, "the doors keep the limit")
		require.True(t, o.DontListen && o.NoSigs)
		require.NotEmpty(t, p.Survives())
	}
	_, err := ParseProfile("sometimes")
	require.EqualError(t, err, `streams: durability "sometimes" is none of fsync, interval, os`)
}

func TestBadListenersAreRefused(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	dir := t.TempDir()
	for listen, want := range map[string]string{
		"localhost":             "is not host:port",
		"127.0.0.1:many":        "has no port between 0 and 65535",
		"127.0.0.1:70000":       "has no port between 0 and 65535",
		"127.0.0.1:-1":          "has no port between 0 and 65535",
		taken.Addr().String():   "address already in use",
		"256.256.256.256:42222": "cannot start",
	} {
		_, err := Start(Options{Dir: dir, Listen: listen, Profile: OS})
		require.ErrorContains(t, err, want, listen)
	}
	_, err = Start(Options{Dir: dir, Listen: "127.0.0.1:0", TLSCert: filepath.Join(dir, "none.pem"), TLSKey: filepath.Join(dir, "none.key")})
	require.ErrorContains(t, err, "cannot load the certificate of the NATS listener")
	s, err := Start(Options{Dir: dir, Profile: OS})
	require.NoError(t, err, "all of them gave the directory free")
	require.Empty(t, s.ClientURL())
	require.NoError(t, s.Shutdown(context.Background()))
	_, err = Start(Options{Dir: filepath.Join(dir, "mode", "below a file")})
	require.ErrorContains(t, err, "cannot make the data directory")
}

func TestRestartKeepsThePortAndTheMessages(t *testing.T) {
	t.Parallel()
	g := run(t, Options{Profile: Interval, Listen: "127.0.0.1:0", Open: true})
	things(t, g.JS)
	url := g.Server.ClientURL()
	require.Regexp(t, `^nats://127\.0\.0\.1:\d+$`, url)
	back := make(chan struct{}, 8)
	client, err := nats.Connect(url, nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1), nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	require.NoError(t, err)
	defer client.Close()
	inProcess, err := nats.Connect("", nats.InProcessServer(g.Server), nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1), nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	require.NoError(t, err)
	defer inProcess.Close()
	_, err = g.JS.Publish(t.Context(), streams.Names{}.Event("thing", "default.a", "thing.made"), []byte("kept"))
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	readers.Go(func() { // others look while it restarts
		for ctx.Err() == nil {
			if u := g.Server.ClientURL(); u != "" && u != url {
				t.Errorf("the URL became %s", u)
			}
			_ = g.Server.LoopbackURL()
			runtime.Gosched()
		}
	})
	for range 2 {
		require.NoError(t, g.Server.Restart())
		for range 2 {
			select {
			case <-back:
			case <-time.After(20 * time.Second):
				t.Fatal("a client did not come back")
			}
		}
	}
	cancel()
	readers.Wait()
	require.Equal(t, url, g.Server.ClientURL())
	require.Eventually(t, g.NC.IsConnected, 20*time.Second, 5*time.Millisecond)
	kept, err := streams.Last(t.Context(), g.NC, streams.EventStream, ">")
	require.NoError(t, err)
	require.Equal(t, "kept", string(kept.Data))
}

// A listener without users takes the program itself and nobody else, unless it is open.
func TestAListenerWithoutUsersIsClosed(t *testing.T) {
	t.Parallel()
	said := &lockedbuffer.Buffer{}
	g := run(t, Options{Profile: OS, Listen: "127.0.0.1:0", Log: slog.New(slog.NewTextHandler(said, nil))})
	require.NotContains(t, said.String(), plaintext, "there is nothing to do about its own one")
	_, err := nats.Connect(g.Server.ClientURL())
	require.ErrorIs(t, err, nats.ErrAuthorization)
	user, password := g.Server.Credentials()
	nc, err := nats.Connect(g.Server.ClientURL(), nats.UserInfo(user, password))
	require.NoError(t, err)
	nc.Close()
}

func TestUsersAreChecked(t *testing.T) {
	t.Parallel()
	list := func(subjects ...string) []string { return subjects }
	for says, u := range map[string]User{
		"":                              {Publish: list("instar.api.get.>", "instar.api.cmd.service.acme.>", "instar.hb.>", "$JS.API.CONSUMER.MSG.NEXT.OUTBOX.shop", "$JS.ACK.OUTBOX.shop.>", "orders.>"), Subscribe: list("instar.evt.>", "orders.>", "$KV.services.>")},
		"needs a role":                  {},
		"is none of":                    {Role: "root"},
		"leave out one":                 {Role: RoleRead, Publish: list("a")},
		"has subscribe without publish": {Subscribe: list("instar.evt.>")},
		"has publish without subscribe": {Publish: list("instar.api.get.>")},
	} {
		u.Name, u.Password = "a", "b"
		err := u.Check(streams.Names{})
		if says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, says)
	}
	for _, s := range []string{
		">", "*.api.>", "$JS.>", "$JS.API.>", "$JS.API.CONSUMER.>", "$JS.API.CONSUMER.CREATE.EVENTS.>", "$JS.API.STREAM.DELETE.EVENTS", "$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.ACK.>",
		"$JS.ACK.COMMANDS.>", "$KV.services.>", "$SYS.>", "instar.>", "instar.in.>", "instar.evt.>", "instar.live.>", "instar.*.a", "_INBOX.>", "_R_.>", "a b", "a\"b", "",
	} {
		require.Error(t, User{Name: "a", Password: "b", Publish: list(s), Subscribe: list("instar.evt.>")}.Check(streams.Names{}), s)
	}
	for _, s := range []string{">", "*.evt.>", "_INBOX.>", "$JS.>", "$SYS.>", "$JS.API.>"} {
		require.Error(t, User{Name: "a", Password: "b", Publish: list("instar.api.get.>"), Subscribe: list(s)}.Check(streams.Names{}), s)
	}
	require.Error(t, User{Name: "a.b", Password: "b", Role: RoleRead}.Check(streams.Names{}))
	require.Error(t, User{Name: "a", Role: RoleRead}.Check(streams.Names{}))
}

func TestUsersHavePermissions(t *testing.T) {
	t.Parallel()
	said := &lockedbuffer.Buffer{}
	log := slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	g := run(t, Options{Profile: OS, Listen: "127.0.0.1:0", Log: log, Users: []User{
		{Name: "admin", Password: "a", Role: RoleAdmin},
		{Name: "reader", Password: "r", Publish: []string{"instar.api.get.>"}, Subscribe: []string{"instar.evt.>"}},
	}})
	require.Contains(t, said.String(), plaintext)
	_, err := nats.Connect(g.Server.ClientURL())
	require.ErrorIs(t, err, nats.ErrAuthorization)
	_, err = nats.Connect(g.Server.ClientURL(), nats.UserInfo("reader", "a"))
	require.ErrorIs(t, err, nats.ErrAuthorization)
	admin, err := nats.Connect(g.Server.ClientURL(), nats.UserInfo("admin", "a"))
	require.NoError(t, err)
	defer admin.Close()
	heard, err := admin.SubscribeSync("instar.>")
	require.NoError(t, err)
	require.NoError(t, admin.Flush())

	reader, err := nats.Connect(g.Server.ClientURL(), nats.UserInfo("reader", "r"))
	require.NoError(t, err)
	defer reader.Close()
	events, err := reader.SubscribeSync(">")
	require.NoError(t, err)
	require.NoError(t, reader.Publish("instar.cmd.thing.default.a.create", nil))
	require.NoError(t, reader.Flush())
	_, err = events.NextMsg(10 * time.Second) // its own, in its own account
	require.NoError(t, err)
	require.NoError(t, g.NC.Publish("instar.fx.thing.do.default.a", nil))
	require.NoError(t, g.NC.Publish("instar.evt.thing.default.a.thing.made", []byte("x"))) // the program's own user may do all
	m, err := events.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Equal(t, "x", string(m.Data))
	for _, want := range []string{"instar.fx.thing.do.default.a", "instar.evt.thing.default.a.thing.made"} {
		m, err = heard.NextMsg(10 * time.Second)
		require.NoError(t, err)
		require.Equal(t, want, m.Subject, "the reader's command was not heard")
	}
	require.NoError(t, reader.PublishRequest("instar.api.get.thing.default.a", "$KV.things.default.a", nil))
	m, err = heard.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Regexp(t, `^_R_\.`, m.Reply)
}

// What the server logs comes into our log, and goes nowhere else.
func TestTheServersLogIsOurs(t *testing.T) {
	t.Parallel()
	out := &lockedbuffer.Buffer{}
	log := slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := Start(Options{Dir: t.TempDir(), Profile: OS, Log: log})
	require.NoError(t, err)
	require.NoError(t, s.Shutdown(context.Background()))
	_, err = s.InProcessConn()
	require.Error(t, err)
	require.Contains(t, out.String(), "from=nats-server")
	require.False(t, strings.Contains(out.String(), "level=ERROR"), out.String())
}

// A publish that returned an error must not be stored when the connection is back.
func TestNothingIsBufferedWhileDisconnected(t *testing.T) {
	t.Parallel()
	g := run(t, Options{Profile: Interval})
	things(t, g.JS)
	require.Equal(t, "_INBOX_instar", strings.SplitN(g.NC.NewInbox(), ".", 2)[0])
	g.Server.stop()
	require.Eventually(t, func() bool { return !g.NC.IsConnected() }, 20*time.Second, 5*time.Millisecond, "it is noticed")
	started := time.Now()
	require.ErrorIs(t, g.NC.Publish(streams.Names{}.Event("thing", "default.a", "thing.made"), nil), nats.ErrReconnectBufExceeded)
	a, err := publish.NewAppender(g.NC, publish.AppenderOptions{})
	require.NoError(t, err)
	defer a.Close()
	event := func() *nats.Msg { return &nats.Msg{Subject: streams.Names{}.Event("thing", "default.a", "thing.made")} }
	r := a.Append(t.Context(), []publish.Write{{Stream: streams.EventStream, Msg: event()}})[0]
	require.Error(t, r.Err)
	require.False(t, errors.Is(r.Err, publish.ErrConflict) || publish.Permanent(r.Err))
	require.Less(t, time.Since(started), 4*time.Second) // it does not wait for the timeout of 5 s
	require.NoError(t, g.Server.start())
	require.Eventually(t, g.NC.IsConnected, 20*time.Second, 5*time.Millisecond)
	none, err := streams.Last(t.Context(), g.NC, streams.EventStream, ">")
	require.NoError(t, err)
	require.Nil(t, none)
	require.NoError(t, a.Append(t.Context(), []publish.Write{{Stream: streams.EventStream, Msg: event()}})[0].Err)
}

func TestHealthTellsWhetherTheServerRuns(t *testing.T) {
	t.Parallel()
	s, err := Start(Options{Dir: t.TempDir(), Profile: OS})
	require.NoError(t, err)
	require.NoError(t, s.Health())
	require.NoError(t, s.Shutdown(t.Context()))
	require.Error(t, s.Health())
}
