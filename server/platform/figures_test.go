//go:build linux

package platform_test

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/wait"
	machine "github.com/bcc94042/instar/machines/platform"
)

// How long tenants take from the request to ready, four at a time, and that no request fails while one of them is upgraded ten times, but those that a client repeats by itself, as net/http does with a GET whose connection has ended before an answer.
func TestFigures(t *testing.T) {
	if os.Getenv("INSTAR_FIGURES") == "" {
		t.Skip("it takes minutes: make bench-platform")
	}
	w := setup(t, "21300-21399")
	w.Start()
	const tenants, atOnce = 20, 4
	began, took := make([]time.Time, tenants), []time.Duration{}
	begun, open := time.Now(), []int{}
	for next := 0; len(took) < tenants; {
		for ; next < tenants && len(open) < atOnce; next++ {
			began[next], open = time.Now(), append(open, next)
			w.send(tenant(next), "own", "request", `{}`)
		}
		open = slices.DeleteFunc(open, func(i int) bool {
			_, v := w.Do("GET", path(tenant(i), "own"), "")
			require.NotEqual(t, machine.Failed, v["state"], "%v", v["lastError"])
			if v["state"] != machine.Ready {
				return false
			}
			took = append(took, time.Since(began[i]))
			return true
		})
		require.NoError(t, wait.Pause(t.Context(), tick))
	}
	all := time.Since(begun)
	for i := range tenants {
		text, err := w.open(tenant(i) + ".apps.example.test")
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("1.0 %s tenant_%s 0", tenant(i), strings.ReplaceAll(tenant(i), "-", "_")), text)
	}
	slices.Sort(took)
	t.Logf("%d tenants, %d at a time, from the request to ready: p50 %s, p99 (the slowest) %s, all in %s", tenants, atOnce, took[tenants/2].Round(time.Millisecond), took[tenants-1].Round(time.Millisecond), all.Round(time.Millisecond))

	load := w.under(tenant(0) + ".apps.example.test")
	const upgrades = 10
	for n := range upgrades {
		version := []string{"1.1", "1.0"}[n%2]
		before := load.served.Load()
		w.send(tenant(0), "own", "upgrade", fmt.Sprintf(`{"version":%q,"weights":[50,100],"holdSeconds":1}`, version))
		d := w.ends(tenant(0), "own", machine.Ready)
		_, v := w.Do("GET", path(tenant(0), "own"), "")
		require.Equal(t, version, d.Version, "%v", v["lastError"])
		require.Greater(t, load.served.Load(), before)
	}
	require.NoError(t, load.end())
	t.Logf("%d upgrades under %d requests, of which none failed after the repeats of the clients themselves", upgrades, load.served.Load())
}

func tenant(n int) string { return fmt.Sprint("tenant", n) }

// load are requests to a name.
type load struct {
	served atomic.Int64
	stop   chan struct{}
	work   sync.WaitGroup
	mu     sync.Mutex
	failed error // all of them
}

// under sends requests to a name over TLS, by four clients with connections that they keep, two of them over HTTP/2, until the load ends.
func (w *world) under(host string) *load {
	l := &load{stop: make(chan struct{})}
	for n := range 4 {
		transport := &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: w.ca.Roots, ServerName: host}, ForceAttemptHTTP2: n%2 == 0,
			DialContext: (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
		}
		client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
		l.work.Go(func() {
			defer transport.CloseIdleConnections()
			for pause := time.NewTicker(2 * time.Millisecond); ; {
				select {
				case <-l.stop:
					return
				case <-pause.C:
				}
				if err := once(client, "https://"+w.Config.Domains.HTTPS+"/live", host); err != nil {
					l.mu.Lock()
					l.failed = errors.Join(l.failed, err)
					l.mu.Unlock()
				}
				l.served.Add(1)
			}
		})
	}
	w.T.Cleanup(func() { _ = l.end() }) // whose errors were seen
	return l
}

// end ends the load, and returns what has failed.
func (l *load) end() error {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.work.Wait()
	return l.failed
}

// once is one request, answered whole.
func once(client *http.Client, url, host string) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Host = host
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = cmp.Or(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return err
}
