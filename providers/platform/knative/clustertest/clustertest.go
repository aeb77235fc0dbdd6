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

const tick = 100 * time.Millisecond // of the controller

// Cluster is one. What its Knative Services are has args that are a command of this machine; it is given HOST and PORT.
type Cluster struct {
	API        knativetest.Server
	Pods       apptest.Machine // by [Key]
	Kubeconfig string          // file
	TLS        atomic.Bool     // URLs are of https

	t    *testing.T
	dir  string
	pods map[string]*pod // by key; of the controller alone
}

// pod is what the controller knows of one.
type pod struct {
	address string
	ready   bool   // it has answered
	ends    int    // how often it had ended then
	why     string // it has ended since
}

// Start starts one that ends with the test.
func Start(t *testing.T) *Cluster {
	t.Helper()
	c := &Cluster{t: t, dir: t.TempDir(), pods: map[string]*pod{}}
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

// count is how many pods there were.
var count atomic.Int32

// free is where a pod can listen. Each has an address of loopback of its own, with a port that no connection is given: one that was free a moment ago may be another's, or of a connection
// to itself.
func free() (string, error) {
	for {
		n, pid := count.Add(1), os.Getpid()
		address := fmt.Sprintf("127.%d.%d.%d:%d", 1+pid>>8%250, pid&0xff, 1+n%250, 28411+n/250)
		l, err := net.Listen("tcp", address)
		if err == nil {
			return address, l.Close()
		}
		if n > 10_000 {
			return "", err
		}
	}
}

// probe asks each pod anew: one that listens and ends is not ready.
var probe = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// run is the pod of a Knative Service, with its Secret where it is mounted.
func (c *Cluster) run(o, data knativetest.Object) (url, failure string) {
	if Container(o) == nil {
		return "", ""
	}
	key := Key(o)
	p := c.pods[key]
	if p == nil {
		address, err := free()
		if err != nil {
			return "", err.Error()
		}
		p = &pod{address: address}
		c.pods[key] = p
		if err := c.Pods.Start(key, c.job(o, data, address)); err != nil {
			return "", err.Error()
		}
	}
	s, _ := c.Pods.Look(key)
	if !p.answers(s) {
		return "", p.why
	}
	if c.TLS.Load() {
		return "https://" + p.address, ""
	}
	return "http://" + p.address, ""
}

// answers asks a pod, unless it has answered and not ended since.
func (p *pod) answers(s apptest.State) bool {
	if p.ready && p.ends == s.Ends {
		return true
	}
	if s.Running {
		if resp, err := probe.Get("http://" + p.address); err == nil {
			_ = resp.Body.Close() // it is ready
			p.ready, p.ends, p.why = true, s.Ends, ""
			return true
		}
	}
	if s.Ends > p.ends && (!s.Running || p.why == "") {
		p.why = s.Last
	}
	return false
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
	delete(c.pods, Key(o))
	c.Pods.Remove(Key(o))
}
