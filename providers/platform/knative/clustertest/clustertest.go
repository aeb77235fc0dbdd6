// Package clustertest is a cluster with Knative for tests: package knativetest with pods that are processes of this machine.
package clustertest

import (
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/knative/knativetest"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
)

const tick = 10 * time.Millisecond // of the controller

// Cluster is one. What its Knative Services are has args that are a command of this machine; it is given HOST and PORT.
type Cluster struct {
	API        knativetest.Server
	Pods       apptest.Machine // by [Key]
	Kubeconfig string          // file
	TLS        atomic.Bool     // URLs are of https

	t         *testing.T
	dir       string
	addresses map[string]string // of pods, by key; of the controller alone
}

// Start starts one that ends with the test.
func Start(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{t: t, dir: t.TempDir(), addresses: map[string]string{}}
	c.API.Run, c.API.End = c.run, c.end
	api := httptest.NewServer(&c.API)
	t.Cleanup(func() { api.CloseClientConnections(); api.Close() })
	c.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(c.Kubeconfig, []byte(knativetest.Kubeconfig(api.URL)), 0o600))
	played := make(chan struct{})
	go func() { defer close(played); c.API.Play(t.Context(), tick) }()
	t.Cleanup(func() { <-played; c.Pods.End() }) // the context has ended by then
	return c
}

// Left are the objects and pods that there are.
func (c *Cluster) Left() []string {
	return append(append(c.API.Names(), c.API.Secrets().Names()...), c.Pods.Names()...)
}

// Dig is what is below an object, by names and places in lists; nil where nothing is.
func Dig(o any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := o.(knativetest.Object)
			o = m[p]
		case int:
			l, _ := o.([]any)
			if p >= len(l) {
				return nil
			}
			o = l[p]
		}
	}
	return o
}

// Container is the container of a Knative Service.
func Container(o knativetest.Object) any {
	return Dig(o, "spec", "template", "spec", "containers", 0)
}

// Key is the namespace and the name of an object.
func Key(o knativetest.Object) string {
	return fmt.Sprintf("%v.%v", Dig(o, "metadata", "namespace"), Dig(o, "metadata", "name"))
}

// pods is how many there were. Each has an address of loopback of its own: a port that was free a moment ago may be another's, or of a connection to itself.
var pods atomic.Int32

// probe asks each pod anew: one that listens and ends is not ready.
var probe = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// run is the pod of a Knative Service, with its Secret where it is mounted.
func (c *Cluster) run(o, data knativetest.Object) (url, failure string) {
	if Container(o) == nil {
		return "", ""
	}
	key := Key(o)
	address := c.addresses[key]
	if address == "" {
		n, pid := pods.Add(1), os.Getpid()
		address = fmt.Sprintf("127.%d.%d.%d:%d", 1+pid>>8%250, pid&0xff, 1+n%250, 8080+n/250)
		c.addresses[key] = address
		if err := c.Pods.Start(key, c.job(o, data, address)); err != nil {
			return "", err.Error()
		}
	}
	s, _ := c.Pods.Look(key)
	if s.Ends > 0 && !s.Running {
		return "", s.Last
	}
	resp, err := probe.Get("http://" + address)
	if err != nil {
		return "", ""
	}
	_ = resp.Body.Close() // it is ready
	if c.TLS.Load() {
		return "https://" + address, ""
	}
	return "http://" + address, ""
}

func (c *Cluster) job(o, data knativetest.Object, address string) *apptest.Job {
	files, _ := Dig(Container(o), "volumeMounts", 0, "mountPath").(string)
	dir := filepath.Join(c.dir, Key(o))
	_ = os.Mkdir(dir, 0o700) // it may be there
	for name, text := range data {
		raw, err := base64.StdEncoding.DecodeString(text.(string))
		if err != nil || os.WriteFile(filepath.Join(dir, name), raw, 0o600) != nil {
			c.t.Errorf("cannot mount %s: %v", name, err)
		}
	}
	host, port, _ := net.SplitHostPort(address)
	job := &apptest.Job{Environ: []string{"GORACE=atexit_sleep_ms=0", "HOST=" + host, "PORT=" + port}}
	env, _ := Dig(Container(o), "env").([]any)
	for _, v := range env {
		value, _ := Dig(v, "value").(string)
		job.Environ = append(job.Environ, fmt.Sprintf("%v=%s", Dig(v, "name"), strings.Replace(value, files, dir, 1)))
	}
	args, _ := Dig(Container(o), "args").([]any)
	for _, word := range args {
		job.Command = append(job.Command, word.(string))
	}
	return job
}

func (c *Cluster) end(o knativetest.Object) {
	delete(c.addresses, Key(o))
	c.Pods.Remove(Key(o))
}
