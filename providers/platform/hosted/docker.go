package hosted

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
)

// Docker is an engine that speaks the HTTP API of Docker over a socket of this machine, version 1.41 or later; Podman has it, too. The API is spoken with net/http: the client
// library would cost the binary megabytes.
//
// A container is of the user of this server, has no capabilities and cannot gain any, and has the directories of its release and its tenant under their own paths. It gets its image
// if the engine has it not.
type Docker struct {
	Patience time.Duration // for which an engine may tell nothing while it gets an image; 5 min when 0

	client *http.Client
}

// apiVersion is the least one that has everything that is used.
const apiVersion = "v1.41"

// NewDocker is the engine that listens on a socket; /var/run/docker.sock when empty.
func NewDocker(socket string) *Docker {
	socket = cmp.Or(socket, "/var/run/docker.sock")
	return &Docker{client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
		IdleConnTimeout: 30 * time.Second,
	}}}
}

// Kind is docker.
func (d *Docker) Kind() string { return "docker" }

// Check fails for a program without an image.
func (d *Docker) Check(p app.Program) error {
	if p.Image == "" {
		return providers.Errorf(providers.Invalid, "the kind docker runs images, and a version has none")
	}
	return nil
}

// labelInstallation is the label that says whose a container is.
const labelInstallation = "instar.installation"

// container is one that is to be created.
type container struct {
	Image        string
	Cmd          []string            `json:",omitempty"`
	Env          []string            // NAME=value
	User         string              // uid:gid
	Labels       map[string]string   //
	ExposedPorts map[string]struct{} // PORT/tcp
	HostConfig   hostConfig
}

type hostConfig struct {
	Binds         []string
	PortBindings  map[string][]portBinding
	RestartPolicy struct{ Name string }
	SecurityOpt   []string
	CapDrop       []string
	LogConfig     logConfig
	Init          bool
	Memory        int64    `json:",omitempty"`
	NanoCpus      int64    `json:",omitempty"`
	PidsLimit     int      `json:",omitempty"`
	Ulimits       []ulimit `json:",omitempty"`
}

type ulimit struct {
	Name       string
	Soft, Hard int
}

type logConfig struct {
	Type   string
	Config map[string]string
}

type portBinding struct{ HostIp, HostPort string } // as the API spells them

func containerOf(u *Unit) *container {
	env := maps.Clone(u.Env)
	env["HOST"] = "0.0.0.0" // of the container
	port := strconv.Itoa(u.Port) + "/tcp"
	c := &container{
		Image: u.Program.Image, Cmd: u.Program.Command, Env: pairs(env), User: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()),
		Labels: map[string]string{"instar.unit": u.Name, labelInstallation: u.Installation}, ExposedPorts: map[string]struct{}{port: {}},
		HostConfig: hostConfig{
			Binds: []string{u.Home + ":" + u.Home, u.Tenant + ":" + u.Tenant}, PortBindings: map[string][]portBinding{port: {{u.Host, strconv.Itoa(u.Port)}}},
			SecurityOpt: []string{"no-new-privileges"}, CapDrop: []string{"ALL"}, Init: true,
			LogConfig: logConfig{"json-file", map[string]string{"max-size": "1m", "max-file": "2"}}, Memory: u.Limits.Memory, NanoCpus: int64(u.Limits.CPU) * 1e6, PidsLimit: u.Limits.Processes,
		},
	}
	if n := u.Limits.Files; n > 0 {
		c.HostConfig.Ulimits = []ulimit{{"nofile", n, n}}
	}
	c.HostConfig.RestartPolicy.Name = "always"
	return c
}

// pairs are variables as NAME=value.
func pairs(env map[string]string) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}

// Prepare has the engine get an image that it has not.
func (d *Docker) Prepare(ctx context.Context, p app.Program, tell func(status string)) error {
	err := d.call(ctx, "GET", (&url.URL{Path: "/images/" + p.Image + "/json"}).EscapedPath(), nil, nil)
	if providers.IsNotFound(err) {
		return d.pull(ctx, p.Image, tell)
	}
	return err
}

// Start creates a container of an image that is there, and starts it.
func (d *Docker) Start(ctx context.Context, u *Unit) error {
	err := d.call(ctx, "POST", "/containers/create?name="+u.Name, containerOf(u), nil)
	if providers.IsNotFound(err) {
		return providers.Errorf(providers.Unavailable, "the image %s was removed: %v", u.Program.Image, err)
	}
	var there *conflict
	if errors.As(err, &there) { // by an attempt before this one
		_, err = d.inspect(ctx, u)
	}
	if err == nil {
		err = d.call(ctx, "POST", "/containers/"+u.Name+"/start", nil, nil)
	}
	return err
}

// inspected is what the engine tells of a container.
type inspected struct {
	RestartCount int
	Config       struct{ Labels map[string]string }
	State        struct {
		Running, Restarting bool
		ExitCode            int
		Error               string
	}
}

// inspect has the engine tell of a container, which is this installation's.
func (d *Docker) inspect(ctx context.Context, u *Unit) (c inspected, err error) {
	var raw bytes.Buffer
	if err := d.call(ctx, "GET", "/containers/"+u.Name+"/json", nil, &raw); err != nil {
		return c, err
	}
	if err := json.Unmarshal(raw.Bytes(), &c); err != nil {
		return c, providers.Errorf(providers.Internal, "docker tells of %s what cannot be read: %v", u.Name, err)
	}
	if c.Config.Labels[labelInstallation] != u.Installation {
		return c, u.anothers("docker")
	}
	return c, nil
}

// Look tells of a container.
func (d *Docker) Look(ctx context.Context, u *Unit) (State, error) {
	c, err := d.inspect(ctx, u)
	if err != nil {
		return State{}, err
	}
	s := State{Running: c.State.Running && !c.State.Restarting, Stopped: !c.State.Running && !c.State.Restarting, Ends: c.RestartCount}
	if !s.Running || s.Ends > 0 {
		s.Message = strings.Join(slices.DeleteFunc([]string{fmt.Sprintf("exit code %d", c.State.ExitCode), c.State.Error, d.last(ctx, u.Name)}, func(s string) bool { return s == "" }), ": ")
	}
	return s, nil
}

// last is the last line that a container wrote; empty where that cannot be read.
func (d *Docker) last(ctx context.Context, name string) string {
	var raw bytes.Buffer
	if err := d.call(ctx, "GET", "/containers/"+name+"/logs?stdout=1&stderr=1&tail="+strconv.Itoa(tail), nil, &raw); err != nil {
		return ""
	}
	return lastOf(raw.Bytes())
}

// tail is how many frames of a log are read: that of the stream of the last one is to be among those before it.
const tail = 100

// lastOf is the last line of the last frames of a log, tail at most: the stream, three zeros, the length, and a line. One that goes on from the frame before of its stream, as the engine cuts long lines,
// may begin within a secret, which nobody would find there: it is not told. Nor is one that may go on from a frame that was not read.
func lastOf(b []byte) string {
	var last []byte
	ended := map[byte]bool{} // whether the last frame of a stream ends a line
	begins, n := true, 0
	for ; len(b) >= 8; n++ {
		stream, size := b[0], min(int(binary.BigEndian.Uint32(b[4:8])), len(b)-8)
		last, b = b[8:8+size], b[8+size:]
		before, known := ended[stream]
		begins = before || !known && n+1 < tail
		ended[stream] = bytes.HasSuffix(last, []byte("\n"))
	}
	if !begins {
		return ""
	}
	return string(bytes.TrimSpace(last))
}

// grace is what a container has between SIGTERM and SIGKILL, in seconds.
const grace = "10"

// Remove ends a container, and removes it with its volumes.
func (d *Docker) Remove(ctx context.Context, u *Unit) error {
	_, err := d.inspect(ctx, u)
	if err == nil {
		err = d.call(ctx, "POST", "/containers/"+u.Name+"/stop?t="+grace, nil, nil)
	}
	if err == nil {
		err = d.call(ctx, "DELETE", "/containers/"+u.Name+"?force=1&v=1", nil, nil)
	}
	if providers.IsNotFound(err) {
		return nil
	}
	return err
}

// conflict is an answer that says that there is one of that name, or that it is being removed.
type conflict struct{ why *providers.Error }

func (c *conflict) Error() string { return c.why.Error() }
func (c *conflict) Unwrap() error { return c.why }

// most is how much of an answer is read.
const most = 4 << 20

// call asks the engine. The answer is written to out, where there is one.
func (d *Docker) call(ctx context.Context, method, path string, body any, out io.Writer) error {
	resp, err := d.ask(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Close() }() // it was read
	raw, err := io.ReadAll(io.LimitReader(resp, most))
	switch {
	case err != nil:
		return unreached(ctx, err)
	case out != nil:
		_, err = out.Write(raw)
	}
	return err
}

// ask asks the engine, and returns its answer, which is no refusal, to be read.
func (d *Docker) ask(ctx context.Context, method, path string, body any) (io.ReadCloser, error) {
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return nil, providers.Errorf(providers.Internal, "cannot ask docker: %v", err)
		}
		in = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://docker/"+apiVersion+path, in)
	if err != nil {
		return nil, providers.Errorf(providers.Internal, "cannot ask docker: %v", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, unreached(ctx, err)
	}
	if resp.StatusCode < http.StatusBadRequest { // also one that says that it runs, or has ended
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }() // it was read
	raw, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, unreached(ctx, err)
	}
	return nil, refusal(resp.StatusCode, raw)
}

func unreached(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return providers.Errorf(providers.Unavailable, "docker does not answer: %v", err)
}

// refusal is an answer that is none.
func refusal(status int, raw []byte) error {
	var said struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(raw, &said) != nil || said.Message == "" {
		said.Message = http.StatusText(status)
	}
	switch status {
	case http.StatusNotFound:
		return providers.Errorf(providers.NotFound, "docker: %s", said.Message)
	case http.StatusBadRequest:
		return providers.Errorf(providers.Invalid, "docker: %s", said.Message)
	case http.StatusConflict:
		return &conflict{providers.Errorf(providers.Unavailable, "docker: %s", said.Message)}
	}
	return providers.Errorf(providers.Unavailable, "docker: %s", said.Message)
}
