package hosted_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/platform/hosted"
)

// engine answers as Docker does, and runs containers as processes of this machine.
type engine struct {
	apptest.Machine
	t      *testing.T
	socket string

	mu      sync.Mutex
	created map[string]map[string]any // by name
	pulled  map[string]bool

	pulling, goOn chan struct{} // where the test waits for a pull, and has it go on; nil where it does not
}

func newEngine(t *testing.T) *engine {
	dir, err := os.MkdirTemp("", "eng") // the name of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	e := &engine{t: t, socket: filepath.Join(dir, "s"), created: map[string]map[string]any{}, pulled: map[string]bool{}}
	l, err := net.Listen("unix", e.socket)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1.41/containers/create", e.create)
	mux.HandleFunc("POST /v1.41/images/create", e.pull)
	mux.HandleFunc("GET /v1.41/images/{name...}", e.image) // …/json
	mux.HandleFunc("POST /v1.41/containers/{name}/start", e.start)
	mux.HandleFunc("POST /v1.41/containers/{name}/stop", e.stop)
	mux.HandleFunc("DELETE /v1.41/containers/{name}", e.remove)
	mux.HandleFunc("GET /v1.41/containers/{name}/json", e.inspect)
	mux.HandleFunc("GET /v1.41/containers/{name}/logs", e.logs)
	srv := &http.Server{Handler: mux}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l)
	}()
	t.Cleanup(func() { _ = srv.Close(); <-served })
	return e
}

func say(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	say(w, status, map[string]string{"message": fmt.Sprintf(format, args...)})
}

func (e *engine) create(w http.ResponseWriter, r *http.Request) {
	var body map[string]any
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "%v", err)
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	name, image := r.URL.Query().Get("name"), body["Image"].(string)
	switch {
	case e.created[name] != nil:
		refuse(w, http.StatusConflict, "Conflict. The container name %q is already in use", name)
	case !e.pulled[image]:
		refuse(w, http.StatusNotFound, "No such image: %s", image)
	default:
		e.created[name] = body
		say(w, http.StatusCreated, map[string]string{"Id": name})
	}
}

func (e *engine) image(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := strings.TrimSuffix(r.PathValue("name"), "/json")
	if !e.pulled[name] {
		refuse(w, http.StatusNotFound, "No such image: %s", name)
		return
	}
	say(w, http.StatusOK, map[string]string{"Id": name})
}

func (e *engine) pull(w http.ResponseWriter, r *http.Request) {
	if e.pulling != nil {
		for layer, far := range map[string]string{"a": `"current": 45, "total": 50`, "b": `"total": 50`, "c": ``} {
			_, _ = fmt.Fprintf(w, `{"status": "Downloading", "id": %q, "progressDetail": {%s}}`+"\n", layer, far)
		}
		_ = http.NewResponseController(w).Flush()
		e.pulling <- struct{}{}
		<-e.goOn
	}
	image := r.URL.Query().Get("fromImage") + ":" + r.URL.Query().Get("tag")
	switch image {
	case "registry.test/large:1": // it tells much before it tells what is wrong
		for range 5000 {
			_, _ = fmt.Fprintf(w, `{"status": "Downloading", "progress": %q}`+"\n", strings.Repeat("=", 1000))
		}
		say(w, http.StatusOK, map[string]string{"error": "the disk is full"})
		return
	case "registry.test/stuck:1":
		_, _ = fmt.Fprintln(w, `{"status": "Downloading"}`)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !strings.HasPrefix(image, "registry.test/app:") {
		say(w, http.StatusOK, map[string]string{"error": "pull access denied for " + image})
		return
	}
	e.pulled[image] = true
	say(w, http.StatusOK, map[string]string{"status": "Download complete"})
}

// container is the one that is asked for, as it was created, or nil, which is answered then.
func (e *engine) container(w http.ResponseWriter, r *http.Request) (name string, body map[string]any) {
	name = r.PathValue("name")
	e.mu.Lock()
	defer e.mu.Unlock()
	if body = e.created[name]; body == nil {
		refuse(w, http.StatusNotFound, "No such container: %s", name)
	}
	return name, body
}

func (e *engine) start(w http.ResponseWriter, r *http.Request) {
	name, body := e.container(w, r)
	if body == nil {
		return
	}
	run := &apptest.Job{}
	for _, p := range body["Env"].([]any) {
		run.Environ = append(run.Environ, strings.Replace(p.(string), "HOST=0.0.0.0", "HOST=127.0.0.1", 1))
	}
	run.Environ = environ(run.Environ)
	for _, word := range body["Cmd"].([]any) {
		run.Command = append(run.Command, word.(string))
	}
	if e.Start(name, run) != nil {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (e *engine) stop(w http.ResponseWriter, r *http.Request) {
	name, body := e.container(w, r)
	switch {
	case body == nil:
	case e.Remove(name):
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusNotModified)
	}
}

func (e *engine) remove(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	delete(e.created, r.PathValue("name"))
	e.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (e *engine) inspect(w http.ResponseWriter, r *http.Request) {
	name, created := e.container(w, r)
	if created == nil {
		return
	}
	s, _ := e.Machine.Look(name)
	say(w, http.StatusOK, map[string]any{"Config": map[string]any{"Labels": created["Labels"]}, "RestartCount": s.Ends, "State": map[string]any{"Running": s.Running, "Restarting": !s.Running && s.Ends > 0, "ExitCode": s.Code, "Error": ""}})
}

func (e *engine) logs(w http.ResponseWriter, r *http.Request) {
	s, _ := e.Machine.Look(r.PathValue("name"))
	frame := binary.BigEndian.AppendUint32([]byte{2, 0, 0, 0}, uint32(len(s.Last)))
	_, _ = w.Write(append(frame, s.Last...))
}

func TestDockerKeepsTheContract(t *testing.T) {
	t.Parallel()
	apptest.Run(t, apptest.Suite{World: func(t *testing.T) apptest.World {
		e := newEngine(t)
		return world(t, hosted.NewDocker(e.socket), &e.Machine)
	}})
}

// What keeps a container from the machine is asked of the engine: a fake one tells only that.
func TestWhatAContainerIsAskedFor(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	w := world(t, hosted.NewDocker(e.socket), &e.Machine)
	p, stop := w.Open(t)
	defer stop()
	r := apptest.Release(1, "1.0")
	r.Limits = app.Limits{Memory: 1 << 30, Files: 77, Processes: 99, CPU: 1500}
	address, err := p.Deploy(t.Context(), r)
	require.NoError(t, err)
	has := apptest.Ask(t, address)
	body := e.created["instar-abcdefgh-default.tenant-acme-r1"]
	host := body["HostConfig"].(map[string]any)
	require.Equal(t, "registry.test/app:1.0", body["Image"])
	require.Equal(t, fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()), body["User"])
	require.Equal(t, []any{"no-new-privileges"}, host["SecurityOpt"])
	require.Equal(t, []any{"ALL"}, host["CapDrop"])
	require.Equal(t, []any{float64(1 << 30), 1.5e9, 99.0, []any{map[string]any{"Name": "nofile", "Soft": 77.0, "Hard": 77.0}}}, []any{host["Memory"], host["NanoCpus"], host["PidsLimit"], host["Ulimits"]})
	require.Equal(t, []any{has.Home + ":" + has.Home, has.Dir + ":" + has.Dir}, host["Binds"])
	require.Equal(t, map[string]any{has.Port + "/tcp": []any{map[string]any{"HostIp": "127.0.0.1", "HostPort": has.Port}}}, host["PortBindings"])
	require.Equal(t, address, "127.0.0.1:"+has.Port)
}

func TestAnImageThatCannotBeHadIsTold(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	c := config(t, hosted.NewDocker(e.socket))
	other := program("1.0")
	other.Image = "elsewhere/app"
	c.Versions["1.0"] = other
	a, err := hosted.Open(c)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close(false)) }()
	_, err = a.Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "pull access denied for elsewhere/app:latest")
	_, err = a.Look(t.Context(), "default", "tenant-acme-r1")
	require.True(t, providers.IsNotFound(err), "%v", err)
}

func TestTheEndOfALongPullIsRead(t *testing.T) {
	t.Parallel()
	err := hosted.NewDocker(newEngine(t).socket).Prepare(t.Context(), app.Program{Image: "registry.test/large:1"}, func(string) {})
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "the disk is full")
}

func TestAPullThatStandsStillEnds(t *testing.T) {
	t.Parallel()
	d := hosted.NewDocker(newEngine(t).socket)
	d.Patience = 200 * time.Millisecond
	err := d.Prepare(t.Context(), app.Program{Image: "registry.test/stuck:1"}, func(string) {})
	require.True(t, providers.IsUnavailable(err), "%v", err)
	require.ErrorContains(t, err, "has told nothing of how it gets the image registry.test/stuck:1 for 200ms")
}

// While an image is on its way there is nothing of its release, and the time of that has not begun.
func TestTheTimeOfAReleaseBeginsWhenItsImageIsThere(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	e.pulling, e.goOn = make(chan struct{}), make(chan struct{})
	c := config(t, hosted.NewDocker(e.socket))
	t.Cleanup(e.End)
	a, err := hosted.Open(c)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close(false)) }()
	deployed := make(chan error, 1)
	go func() {
		_, err := a.Deploy(t.Context(), apptest.Release(1, "1.0"))
		deployed <- err
	}()
	select {
	case <-e.pulling:
	case err := <-deployed:
		require.FailNow(t, "it is deployed without its image", "%v", err)
	}
	require.Eventually(t, func() bool { // as it is told
		at, err := a.Look(t.Context(), "default", "tenant-acme-r1")
		require.NoError(t, err)
		return at == app.Rollout{Status: "getting the image registry.test/app:1.0: 40 %"}
	}, time.Minute, time.Millisecond)
	require.NoFileExists(t, filepath.Join(c.Dir, "releases", "default.tenant-acme-r1", "release.json"))
	there := time.Now()
	close(e.goOn)
	require.NoError(t, <-deployed)
	raw, err := os.ReadFile(filepath.Join(c.Dir, "releases", "default.tenant-acme-r1", "release.json"))
	require.NoError(t, err)
	var has struct{ Began time.Time }
	require.NoError(t, json.Unmarshal(raw, &has))
	require.False(t, has.Began.Before(there.Round(0)))
}

// What was removed behind the server's back, or by a restart of the machine, is made again under its address.
func TestWhatIsGoneIsMadeAgain(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	w := world(t, hosted.NewDocker(e.socket), &e.Machine)
	p, stop := w.Open(t)
	address, err := p.Deploy(t.Context(), apptest.Release(1, "1.0"))
	stop()
	require.NoError(t, err)
	before := apptest.Ask(t, address)
	const name = "instar-abcdefgh-default.tenant-acme-r1"
	require.True(t, e.Remove(name))
	e.mu.Lock()
	delete(e.created, name)
	e.mu.Unlock()
	_, stop = w.Open(t)
	defer stop()
	require.NotEqual(t, before.PID, apptest.Ask(t, address).PID)
}

// A container may stay and not run: the server was killed before it started it, or somebody has stopped it.
func TestWhatStandsStillIsStarted(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	w := world(t, hosted.NewDocker(e.socket), &e.Machine)
	p, stop := w.Open(t)
	address, err := p.Deploy(t.Context(), apptest.Release(1, "1.0"))
	stop()
	require.NoError(t, err)
	require.True(t, e.Remove("instar-abcdefgh-default.tenant-acme-r1")) // it is created still
	_, stop = w.Open(t)
	defer stop()
	apptest.Ask(t, address)
}

// An engine may have a container of that name which another installation, or somebody, has made.
func TestAnothersContainerIsLeftAlone(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	w := world(t, hosted.NewDocker(e.socket), &e.Machine)
	const name = "instar-abcdefgh-default.tenant-acme-r1"
	for _, labels := range []map[string]any{{"instar.installation": "abcdefgh24"}, {}} {
		e.created[name] = map[string]any{"Labels": labels}
		p, stop := w.Open(t)
		_, err := p.Deploy(t.Context(), apptest.Release(1, "1.0"))
		require.True(t, providers.IsInvalid(err), "%v", err)
		require.ErrorContains(t, err, "not of this installation")
		_, err = p.Look(t.Context(), "default", "tenant-acme-r1")
		require.True(t, providers.IsInvalid(err), "%v", err)
		err = p.Remove(t.Context(), apptest.Release(1, "1.0"))
		require.True(t, providers.IsInvalid(err), "%v", err)
		stop()
		require.NotNil(t, e.created[name])
		require.Empty(t, e.Names())
	}
}

func TestAnEngineThatIsGoneIsUnavailable(t *testing.T) {
	t.Parallel()
	d := hosted.NewDocker(filepath.Join(t.TempDir(), "none"))
	_, err := d.Look(t.Context(), &hosted.Unit{Name: "x"})
	require.True(t, providers.IsUnavailable(err), "%v", err)
}

// Against an engine of this machine, where one runs: that its answers are those of the fake one.
func TestARealEngine(t *testing.T) {
	t.Parallel()
	if _, err := net.Dial("unix", "/var/run/docker.sock"); err != nil {
		t.Skip("no engine of containers runs here, so what is asked of it was only asked of a fake one: ", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := hosted.NewDocker("")
	_, err := d.Look(ctx, &hosted.Unit{Name: "instar-there-is-none"})
	require.True(t, providers.IsNotFound(err), "%v", err)
	require.NoError(t, d.Remove(ctx, &hosted.Unit{Name: "instar-there-is-none"}))
}
