package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/internal/lockedbuffer"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
)

// alone runs a command that needs no server.
func alone(args ...string) (int, string) {
	var out lockedbuffer.Buffer
	code := execute(args, strings.NewReader(""), &out, &out)
	return code, out.String()
}

// toldEvents are every event in the stream, by id.
func toldEvents(t *testing.T, js jetstream.JetStream) map[string]string {
	all := map[string]string{}
	s, err := js.Stream(t.Context(), "EVENTS")
	require.NoError(t, err)
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		require.NoError(t, err)
		require.NotContains(t, all, m.Header.Get("ce-id"), "told once")
		all[m.Header.Get("ce-id")] = string(m.Data)
	}
	return all
}

func (w *whole) js(t *testing.T) jetstream.JetStream {
	nc, err := nats.Connect(w.nats)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	return js
}

type standing struct {
	State    string `json:"state"`
	Version  uint64 `json:"version"`
	Revision uint64 `json:"revision"`
}

func (w *whole) standing(id string) (v standing) {
	require.NoError(w.t, json.Unmarshal([]byte(w.must("service", "get", id, "-o", "json")), &v))
	return v
}

// A backup is taken under load, the server is lost, and another one goes on elsewhere: with all that was answered before the backup began, under ids that nobody has
// seen, with every timer, answer, consumer and stream.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	simulated := func(c *config.Config) { c.Gateway = config.GatewaySimulated }
	dir, elsewhere, file := t.TempDir(), filepath.Join(t.TempDir(), "new"), filepath.Join(t.TempDir(), "backups", "now.backup")
	w := startWhole(t, dir, simulated)
	w.must("service", "create", "web", "--image", "sim:ok", "--wait")
	w.must("service", "create", "gone", "--image", "sim:ok", "--wait")
	w.must("service", "delete", "gone", "--yes", "--wait")
	w.must("service", "create", "late", "--image", "sim:never-ready", "--set", "policy.progressDeadlineSeconds=20")
	w.must("service", "update", "web", "--image", "sim:ok", "--env", "A=1", "--idempotency-key", "once", "--wait")
	w.must("instance", "register", "web/a", "--node-address", "127.0.0.1:1")
	w.must("instance", "maintenance", "web/a", "--enabled", "--for", "15s", "--reason", "disk")
	js := w.js(t)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}})
	require.NoError(t, err)
	for i := range 3 {
		_, err = js.Publish(t.Context(), fmt.Sprint("orders.", i), []byte("x"))
		require.NoError(t, err)
	}
	reader, err := js.CreateConsumer(t.Context(), "EVENTS", jetstream.ConsumerConfig{Durable: "reader", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "instar.evt.service.default.web.>"})
	require.NoError(t, err)
	for range 3 {
		m, err := reader.Next()
		require.NoError(t, err)
		require.NoError(t, m.DoubleAck(t.Context()))
	}
	next, err := reader.Next() // not acknowledged
	require.NoError(t, err)

	var load sync.WaitGroup
	var made atomic.Int64 // services that are known to be there
	stop := make(chan struct{})
	for n := range 2 {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if code, _ := w.cli("service", "create", fmt.Sprintf("s%d-%d", n, i), "--image", "sim:ok"); code == command.ExitOK && n == 0 {
					made.Store(int64(i + 1))
				}
				w.cli("service", "update", "web", "--image", "sim:ok", "--env", fmt.Sprint("A=", i))
			}
		})
	}
	require.Eventually(t, func() bool { return made.Load() > 3 }, 60*time.Second, 10*time.Millisecond)
	sure, before := made.Load(), w.standing("web")
	said := w.must("backup", "--to", file)
	require.Contains(t, said, "now.backup")
	require.Contains(t, said, "services: ")
	enough := made.Load() + 2
	require.Eventually(t, func() bool { return made.Load() > enough }, 60*time.Second, 10*time.Millisecond)
	close(stop)
	load.Wait()
	w.must("service", "create", "after", "--image", "sim:ok", "--wait") // others have seen it, and it is lost
	was, last, seen := w.standing("web"), w.standing("after"), toldEvents(t, js)
	require.NoError(t, w.stop())
	require.NoError(t, os.RemoveAll(dir))

	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	code, said := alone("restore", file, "--data", elsewhere, "--log-level", "error")
	require.Zero(t, code, said)
	require.Contains(t, said, "filled: "+elsewhere+"\n")
	require.Contains(t, said, elsewhere+" has no directory process: ")
	code, said = alone("restore", file, "--data", elsewhere, "--durability", "interval", "--log-level", "error")
	require.NotZero(t, code)
	require.Contains(t, said, "a restore takes an empty place")

	w = startWhole(t, elsewhere, simulated)
	for i := range sure {
		require.Contains(t, []string{"CREATING", "READY"}, w.standing(fmt.Sprintf("s0-%d", i)).State)
	}
	now := w.standing("web")
	require.GreaterOrEqual(t, was.Version, before.Version)
	require.Greater(t, now.Version, max(was.Version, last.Version), "versions go on above all that were seen")
	require.Greater(t, now.Revision, max(was.Revision, last.Revision))
	require.Equal(t, "DELETED", w.standing("gone").State)
	code, _ = w.cli("service", "get", "after")
	require.Equal(t, command.ExitNotFound, code)
	updates := func() int { return strings.Count(w.must("service", "events", "web"), "service.update.requested") } // what is observed makes versions, too
	done := updates()
	require.Contains(t, w.must("service", "update", "web", "--image", "sim:ok", "--env", "A=1", "--idempotency-key", "once"), "applied", "the answer of then")
	require.Equal(t, done, updates(), "and nothing was done")
	w.must("service", "create", "after", "--image", "sim:ok", "--wait")
	require.Greater(t, w.standing("after").Version, last.Version)
	w.must("service", "create", "gone", "--image", "sim:ok", "--wait")
	w.must("service", "wait", "late", "--for", "state=FAILED") // its deadline is of before
	require.Eventually(t, func() bool { return !strings.Contains(w.must("instance", "get", "web/a", "-o", "json"), `"until"`) }, 60*time.Second, 50*time.Millisecond)

	require.Contains(t, w.must("service", "events", "web", "--verify"), "is complete, except for 0 gaps")
	js = w.js(t)
	for id, body := range toldEvents(t, js) {
		if old, both := seen[id]; both {
			require.Equal(t, old, body, "event %s tells two things", id)
		}
	}
	orders, err := js.Stream(t.Context(), "ORDERS")
	require.NoError(t, err)
	require.EqualValues(t, 3, orders.CachedInfo().State.Msgs)
	reader, err = js.Consumer(t.Context(), "EVENTS", "reader")
	require.NoError(t, err)
	m, err := reader.Next()
	require.NoError(t, err)
	require.Equal(t, next.Headers().Get("ce-id"), m.Headers().Get("ce-id"), "it goes on where it was")
	require.NotRegexp(t, regexp.MustCompile(`(?m)^instar_reconciled_total\{.*\} [1-9]`), body(t, w.url+"/metrics"))
	require.Regexp(t, regexp.MustCompile(`READY +\d`), w.must("machine", "counts", "service"))
}

// A file that was cut off, or changed, is found before anything is made of it, and what was begun is taken by no server.
func TestBackupsThatAreNotComplete(t *testing.T) {
	t.Parallel()
	w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Gateway = config.GatewaySimulated })
	w.must("service", "create", "web", "--image", "sim:ok", "--wait")
	dir := t.TempDir()
	w.must("backup", "--to", dir+"/")
	files, err := filepath.Glob(filepath.Join(dir, "instar-*Z.backup"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	code, said := alone("backup", "verify", files[0])
	require.Zero(t, code, said)
	whole, err := os.ReadFile(files[0])
	require.NoError(t, err)
	bad := filepath.Join(dir, "bad")
	for _, damaged := range [][]byte{nil, whole[:len(whole)/2], whole[:len(whole)-1], append([]byte{}, append(whole[:len(whole)/3:len(whole)/3], append([]byte{whole[len(whole)/3] ^ 1}, whole[len(whole)/3+1:]...)...)...)} {
		require.NoError(t, os.WriteFile(bad, damaged, 0o600))
		code, said := alone("backup", "verify", bad)
		require.NotZero(t, code)
		require.Contains(t, said, "not complete")
	}
	z, err := zstd.NewReader(nil)
	require.NoError(t, err)
	lines, err := z.DecodeAll(whole, nil)
	require.NoError(t, err)
	again, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	lines = lines[:bytes.LastIndexByte(lines[:len(lines)-1], '\n')+1] // all but its end
	require.NoError(t, os.WriteFile(bad, again.EncodeAll(lines, nil), 0o600))
	data := filepath.Join(dir, "data")
	code, said = alone("restore", bad, "--data", data, "--durability", "interval", "--log-level", "error")
	require.NotZero(t, code)
	require.Contains(t, said, "not complete")
	require.Contains(t, said, "remove "+filepath.Join(data, "nats")+" before the next restore")
	code, said = alone("restore", files[0], "--data", data, "--durability", "interval", "--log-level", "error")
	require.NotZero(t, code)
	require.Contains(t, said, "a restore of these streams did not end")
	require.Contains(t, said, "it is in "+filepath.Join(data, "nats"))
	code, said = alone("serve", "--data", data, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--log-level", "error")
	require.NotZero(t, code)
	require.Contains(t, said, "a restore of these streams did not end")
	code, said = w.cli("backup", "--to", files[0])
	require.NotZero(t, code)
	require.Contains(t, said, "is there already")
	left, err := filepath.Glob(filepath.Join(dir, "*.part"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// An object store keeps what is complete, and nothing else.
func TestBackupToAnObjectStore(t *testing.T) {
	store := s3mem.New()
	require.NoError(t, store.CreateBucket("backups"))
	s3 := httptest.NewTLSServer(gofakes3.New(store).Server())
	t.Cleanup(s3.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s3.Certificate().Raw}), 0o600))
	t.Setenv("AWS_CA_BUNDLE", ca)
	t.Setenv("AWS_ENDPOINT_URL", s3.URL)
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	w := startWhole(t, t.TempDir(), func(c *config.Config) { c.Gateway = config.GatewaySimulated })
	w.must("service", "create", "web", "--image", "sim:ok", "--wait")
	said := w.must("backup", "--to", "s3://backups/instar/")
	at := regexp.MustCompile(`s3://backups/instar/instar-\S+`).FindString(said)
	require.NotEmpty(t, at, said)
	data := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(data, "process"), 0o700))
	code, said := alone("restore", at, "--data", data, "--durability", "interval", "--log-level", "error")
	require.Zero(t, code, said)
	require.Contains(t, said, "restored: ")
	require.NotContains(t, said, "has no process")

	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(cut.Close)
	w.url = cut.URL
	code, said = w.cli("backup", "--to", "s3://backups/half")
	require.NotZero(t, code)
	require.Contains(t, said, "there is no backup")
	_, err := store.HeadObject("backups", "half")
	require.Error(t, err)
}

// The server ends an answer that nobody reads; the connection does not say that this was why.
func TestBackupToAPipeThatStalls(t *testing.T) {
	t.Parallel()
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(cut.Close)
	for pause, says := range map[time.Duration]bool{0: false, 1100 * time.Millisecond: true} {
		var said bytes.Buffer
		code := execute([]string{"backup", "--to", "-", "--server", cut.URL}, strings.NewReader(""), pausing(pause), &said)
		require.NotZero(t, code)
		require.Contains(t, said.String(), "there is no backup")
		require.Equal(t, says, strings.Contains(said.String(), "the place took nothing for 1.") && strings.Contains(said.String(), "http.writeTimeout (10s)"), said.String())
	}
}

type pausing time.Duration

func (p pausing) Write(b []byte) (int, error) {
	time.Sleep(time.Duration(p))
	return len(b), nil
}

// Servers of this installation must not run while it is restored; those of others, which have another prefix, may.
func TestRestoreBesideOtherInstallations(t *testing.T) {
	t.Parallel()
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	require.NoError(t, err)
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	require.True(t, srv.ReadyForConnections(10*time.Second))
	nc, err := nats.Connect(srv.ClientURL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	none := write(t, "none.backup", "")
	restore := func() string {
		code, said := alone("restore", none, "--data", t.TempDir(), "--nats-url", srv.ClientURL(), "--nats-prefix", "mine", "--log-level", "error")
		require.NotZero(t, code)
		return said
	}
	runs := func(prefix string) micro.Service {
		s, err := micro.AddService(nc, micro.Config{Name: "instar", Version: "1.0.0", Metadata: map[string]string{"prefix": prefix}})
		require.NoError(t, err)
		require.NoError(t, nc.Flush())
		return s
	}
	require.Contains(t, restore(), "the backup is not complete", "nobody runs")
	runs("instar")
	runs("mine2")
	require.Contains(t, restore(), "the backup is not complete", "others run")
	for _, own := range []string{"mine", ""} { // without one it cannot be told apart
		s := runs(own)
		require.Contains(t, restore(), "a server of this installation runs")
		require.NoError(t, s.Stop())
	}
}
