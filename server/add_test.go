package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
)

func TestAMachineIsAddedWhileTheServerRuns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir, server.Options{Machines: []*machines.Machine{door()}})
	until := r.watch("/v1/watch", "")
	until("snapshot")
	code, _ := r.do("POST", "/v1/kettles/k/fill", `{"liters":2}`)
	require.Equal(t, 404, code)
	busy := make(chan struct{})
	var work sync.WaitGroup
	for client := range 4 { // of the other machine, all the while
		work.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-busy:
					return
				default:
					path := fmt.Sprintf("/v1/doors/d%d-%d/", client, n)
					if code, text := r.do("POST", path+"open", ""); code != 200 || !strings.Contains(text, `"applied"`) {
						t.Error(path, code, text)
					}
					if m, err := r.nc.Request(fmt.Sprintf("instar.api.cmd.door.default.d%d-%d.shut", client, n), nil, 10*time.Second); err != nil || !strings.Contains(string(m.Data), `"applied"`) {
						t.Error(path, err, m)
					}
				}
			}
		})
	}
	m := kettle("kettle", "kettles")
	same := make(chan error, 4)
	for n := range cap(same) { // one of them adds it, and others besides
		work.Go(func() { same <- r.host.AddMachine(t.Context(), m, server.Performs(stove{})) })
		work.Go(func() {
			if err := r.host.AddMachine(t.Context(), kettle(fmt.Sprintf("pot%d", n), fmt.Sprintf("pots%d", n)), server.Performs(stove{})); err != nil {
				t.Error(err)
			}
		})
	}
	added := 0
	for range cap(same) {
		if err := <-same; err == nil {
			added++
		} else {
			require.ErrorContains(t, err, "cannot add machine kettle: registry: kettle and kettle both have the name kettle")
		}
	}
	require.Equal(t, 1, added)
	require.Contains(t, r.ok("POST", "/v1/kettles/http/fill", `{"liters":2}`), `"applied"`)
	require.Contains(t, r.ask("instar.api.cmd.kettle.default.nats.fill", `{"liters":3}`), `"applied"`)
	close(busy)
	work.Wait()
	for _, id := range []string{"http", "nats"} { // the effect was performed, and the timer has fired
		r.comes("/v1/kettles/"+id, `"state":"COLD"`)
		r.comes("/v1/kettles/"+id+"/times", `{"value":1}`)
	}
	t.Run("AllOfItIsThere", func(t *testing.T) {
		r := &running{t, r.host, r.url, r.nc, nil}
		require.Contains(t, r.ok("GET", "/openapi.json", ""), `"/v1/kettles/{id}/fill"`)
		require.Contains(t, r.ok("GET", "/openapi.yaml", ""), `/v1/pots3/{id}/fill`)
		require.Contains(t, r.ok("GET", "/asyncapi.json", ""), `"kettle.fill"`)
		require.Contains(t, r.ok("GET", "/docs", ""), "It boils water.")
		require.Contains(t, r.ok("GET", "/v1/machines", ""), `"kettle"`)
		require.Contains(t, r.ok("GET", "/v1/machines/kettle/counts", ""), `"COLD":2`)
		require.Contains(t, r.ok("GET", "/v1/kettles", ""), `"id":"nats"`)
		require.Contains(t, r.ok("GET", "/v1/kettles/http/events", ""), `"kettle.cold"`)
		require.Contains(t, r.ok("GET", "/metrics", ""), `instar_entities{machine="kettle",state="COLD"} 2`)
		require.Contains(t, r.ok("GET", "/readyz?verbose", ""), "index of kettles")
		require.Contains(t, r.ask("instar.api.get.kettle.default.http", ""), `"COLD"`)
		require.Contains(t, r.ask("instar.api.list.kettle", "{}"), `"nats"`)
		require.Eventually(t, func() bool { return strings.Contains(r.ask("$SRV.INFO.instar", ""), "kettle") }, time.Minute, 10*time.Millisecond)
		code, text := r.do("POST", "/v1/kettles/bad/fill", `{"liters":10}`)
		require.Equal(t, 422, code, text)
	})
	t.Run("Batch", func(t *testing.T) {
		r := &running{t, r.host, r.url, r.nc, nil}
		var op struct{ Name string }
		require.NoError(t, json.Unmarshal([]byte(r.ok("POST", "/v1/batches", `{"machine":"kettle","command":"heat"}`)), &op))
		require.Contains(t, r.ok("GET", "/v1/operations/"+op.Name, "", "Prefer", "wait=20"), `"applied":2`)
		r.comes("/v1/kettles/http/times", `{"value":2}`)
	})
	t.Run("WatchesOfAllBeginAnew", func(t *testing.T) {
		r := &running{t, r.host, r.url, r.nc, nil}
		_, id := until("end")
		require.Contains(t, id, "door:")
		until := r.watch("/v1/watch?machine=kettle", "")
		until("snapshot")
		all := r.watch("/v1/watch", id)
		for snap := ""; !strings.Contains(snap, `"machine":"kettle"`); {
			snap, _ = all("snapshot")
		}
		r.ok("POST", "/v1/kettles/watched/fill", `{"liters":1}`)
		for _, w := range []func(string) (string, string){until, all} {
			data, _ := w("entity")
			require.Contains(t, data, `"id":"watched"`)
		}
	})
	require.NoError(t, r.stop())
	require.ErrorContains(t, r.host.AddMachine(t.Context(), kettle("late", "lates"), server.Performs(stove{})), "cannot add machine late: the server stops")

	r = start(t, dir, server.Options{Machines: []*machines.Machine{door(), m}, Providers: map[string]server.Provider{"kettle": server.Performs(stove{})}})
	r.comes("/v1/kettles?state=COLD", `"id":"nats"`)
	r.ok("POST", "/v1/kettles/nats/heat", "")
	r.comes("/v1/kettles/nats/times", `{"value":3}`)
}

// A machine that cannot be added leaves nothing behind, so that it can be added when what was wrong is right.
func TestAMachineThatCannotBeAdded(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir(), server.Options{Machines: []*machines.Machine{door()}})
	before := r.ok("GET", "/openapi.json", "")
	metric := func() prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "kettles_total", Help: "Kettles."})
	}
	opens := func(open func(*server.Host) error) server.Provider {
		return server.Provider{Open: func(_ context.Context, h *server.Host) (server.Work, error) {
			return server.Work{Performer: stove{}}, open(h)
		}}
	}
	var kept *server.Host
	seven := netip.MustParseAddrPort("127.0.0.1:7")
	stopped := make(chan struct{}, 3)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for want, add := range map[string]func() error{
		"registry: door and lock both have the bucket doors": func() error {
			return r.host.AddMachine(t.Context(), kettle("lock", "doors"), server.Performs(stove{}))
		},
		"registry: a machine is made by machines.Define": func() error {
			return r.host.AddMachine(t.Context(), &machines.Machine{Name: "kettle", Plural: "kettles"}, server.Provider{})
		},
		"machine kettle has effects and no provider": func() error {
			return r.host.AddMachine(t.Context(), kettle("kettle", "kettles"), server.Provider{})
		},
		"there is no machine to add": func() error { return r.host.AddMachine(t.Context(), nil, server.Provider{}) },
		"the bucket owners is one of the server": func() error {
			return r.host.AddMachine(t.Context(), kettle("owner", "owners"), server.Performs(stove{}))
		},
		"the gas is off": func() error { // what has ended before is not the server's end
			return r.host.AddMachine(t.Context(), kettle("kettle", "kettles"), opens(func(h *server.Host) error {
				over := make(chan struct{})
				h.Go(t.Context(), "a flame", func(context.Context) error { defer close(over); return errors.New("no gas") })
				<-over
				return errors.New("the gas is off")
			}))
		},
		"the gas was turned off": func() error { // and its connections closed, which are no part of the server
			return r.host.AddMachine(t.Context(), kettle("kettle", "kettles"), opens(func(h *server.Host) error {
				for range 10 {
					nc, _, err := h.Connect("gas")
					require.NoError(t, err)
					told, tell := make(chan struct{}), nc.ClosedHandler()
					nc.SetClosedHandler(func(nc *nats.Conn) { tell(nc); close(told) })
					nc.Close()
					<-told
				}
				return errors.New("the gas was turned off")
			}))
		},
		"cannot open the provider of kettle: context canceled": func() error {
			ctx, cancel := context.WithCancel(t.Context())
			return r.host.AddMachine(ctx, kettle("kettle", "kettles"), server.Provider{Open: func(ctx context.Context, _ *server.Host) (server.Work, error) {
				cancel()
				return server.Work{}, canceled(ctx)
			}})
		},
		"it listens in vain": func() error {
			return r.host.AddMachine(t.Context(), kettle("kettle", "kettles"), opens(func(h *server.Host) error {
				kept = h
				h.Listens(seven.String())
				return errors.New("it listens in vain")
			}))
		},
		"it went up": func() (err error) {
			defer func() { err = fmt.Errorf("%v", recover()) }()
			return r.host.AddMachine(t.Context(), kettle("kettle", "kettles"), opens(func(h *server.Host) error {
				h.OnStop("the gas", func(context.Context) error { stopped <- struct{}{}; return nil })
				panic("it went up")
			}))
		},
		"its provider performs no effects": func() error {
			return r.host.AddMachine(t.Context(), kettle("kettle", "kettles"), server.Provider{Open: func(context.Context, *server.Host) (server.Work, error) { return server.Work{}, nil }})
		},
		"cannot build the operations": func() error {
			return r.host.AddMachine(t.Context(), kettle("kettle", "kettles", func(d *machines.Definition[water]) {
				d.Inputs[1].Body = struct {
					C int `json:"c" minimum:"few"`
				}{}
			}), server.Performs(stove{}))
		},
		"cannot open the provider of kettle: out of gas": func() error {
			return r.host.AddMachine(t.Context(), kettle("kettle", "kettles"), opens(func(h *server.Host) error {
				require.NoError(t, h.Register(metric()))
				_, _, err := h.Connect("kettles")
				require.NoError(t, err)
				h.Go(t.Context(), "a flame", func(ctx context.Context) error { <-ctx.Done(); stopped <- struct{}{}; return nil })
				h.OnStop("the gas", func(context.Context) error { stopped <- struct{}{}; return nil })
				return errors.New("out of gas")
			}))
		},
		"settings of the API, which are those of the start": func() error {
			return r.host.AddMachine(t.Context(), kettle("kettle", "kettles"), opens(func(h *server.Host) error { h.API(func(*api.Options) {}); return nil }))
		},
		"still being opened, which cannot add another one": func() error {
			return r.host.AddMachine(t.Context(), kettle("kettle", "kettles"), opens(func(h *server.Host) error {
				return h.AddMachine(t.Context(), kettle("pot", "pots"), server.Performs(stove{}))
			}))
		},
		"context canceled": func() error { return r.host.AddMachine(ended, kettle("kettle", "kettles"), server.Performs(stove{})) },
	} {
		require.ErrorContains(t, add(), want, want)
		require.Equal(t, before, r.ok("GET", "/openapi.json", ""), want)
		require.Nil(t, r.host.Deps.Machines.Get("kettle"), want)
		require.Nil(t, r.host.Indexes.Get("kettle"), want)
	}
	for range cap(stopped) {
		<-stopped
	}
	require.NotContains(t, r.host.Listening(), seven)
	kept.Listens(seven.String())
	require.NotContains(t, r.host.Listening(), seven)
	require.NoError(t, kept.Register(metric()))
	nc, _, err := kept.Connect("late")
	require.NoError(t, err)
	require.True(t, nc.IsClosed())
	late := make(chan error, 1)
	kept.Go(t.Context(), "a late flame", func(ctx context.Context) error { late <- canceled(ctx); return nil })
	require.ErrorIs(t, <-late, context.Canceled)

	ctx, cancel := context.WithCancel(t.Context())
	burns := make(chan error, 1)
	require.NoError(t, r.host.AddMachine(ctx, kettle("kettle", "kettles"), server.Provider{Open: func(ctx context.Context, h *server.Host) (server.Work, error) {
		h.Listens(seven.String())
		h.OnStop("the gas", func(context.Context) error { close(stopped); burns <- ctx.Err(); return nil })
		return server.Work{Performer: stove{}}, h.Register(metric())
	}}))
	cancel() // nobody waits for the addition any more
	require.Contains(t, r.host.Listening(), seven)
	r.ok("POST", "/v1/kettles/k/fill", `{"liters":1}`)
	r.comes("/v1/kettles/k", `"state":"COLD"`)
	require.NoError(t, r.stop())
	<-stopped
	require.NoError(t, <-burns, "what a provider starts outlives that it is opened")
}

// canceled waits until a context has ended, and says so.
func canceled(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(10 * time.Second):
		return errors.New("the context does not end")
	}
}

// A machine that is being added when the server stops is not there afterwards, and what its provider has started has stopped.
func TestAMachineIsBeingAddedWhenTheServerStops(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir(), server.Options{Machines: []*machines.Machine{door()}})
	opening, open, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
	added, ended := make(chan error, 2), make(chan error, 1)
	add := func(name string, opens func(*server.Host)) {
		added <- r.host.AddMachine(t.Context(), kettle(name, name+"s"), server.Provider{Open: func(_ context.Context, h *server.Host) (server.Work, error) {
			opens(h)
			return server.Work{Performer: stove{}}, nil
		}})
	}
	go add("kettle", func(h *server.Host) {
		h.OnStop("the gas", func(context.Context) error { close(stopped); return nil })
		close(opening)
		<-open
	})
	<-opening
	go add("pot", func(*server.Host) { t.Error("its turn has not come") })
	go func() { ended <- r.stop() }()
	require.ErrorContains(t, <-added, "cannot add machine pot: the server stops")
	require.Empty(t, ended, "it waits for the provider")
	close(open)
	require.ErrorContains(t, <-added, "cannot add machine kettle: the server stops")
	<-stopped
	require.NoError(t, <-ended)
}

// A node that does not know a machine refuses its commands and keeps them; where it is added before the node acts, it is as if it had always been there.
func TestAMachineThatANodeDoesNotKnow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	add := func(ctx context.Context, h *server.Host) error {
		return h.AddMachine(ctx, kettle("kettle", "kettles"), server.Performs(stove{}))
	}
	r := start(t, dir, server.Options{Machines: []*machines.Machine{door()}, Open: add})
	r.ok("POST", "/v1/kettles/k/fill", `{"liters":1}`)
	r.comes("/v1/kettles/k", `"state":"COLD"`)
	require.NoError(t, r.stop())

	r = start(t, dir, server.Options{Machines: []*machines.Machine{door()}})
	reply := r.nc.NewRespInbox()
	sub, err := r.nc.SubscribeSync(reply)
	require.NoError(t, err)
	require.NoError(t, r.nc.PublishMsg(&nats.Msg{Subject: "instar.cmd.kettle.default.k.heat", Header: nats.Header{"Instar-Reply": {reply}}}))
	answer, err := sub.NextMsg(10 * time.Second)
	require.NoError(t, err)
	require.Contains(t, string(answer.Data), machines.CodeNotFound)
	r.comes("/v1/dead-letters", "there is no machine")
	require.NoError(t, add(t.Context(), r.host))
	r.comes("/v1/kettles/k", `"version":3`)
	r.ok("POST", "/v1/dead-letters/1/redrive", "")
	r.comes("/v1/kettles/k/times", `{"value":2}`)
}

// Nodes that share the work and do not have the same machines: each takes the commands that it knows, and keeps the others until it knows them.
func TestAMachineThatOneOfTwoNodesKnows(t *testing.T) {
	t.Parallel()
	one := start(t, t.TempDir(), server.Options{Machines: []*machines.Machine{door()}}, func(c *config.Config) { c.NATS.Listen = "127.0.0.1:0" })
	two := start(t, t.TempDir(), server.Options{Machines: []*machines.Machine{door()}}, func(c *config.Config) { c.NATS.URL = one.host.Embedded.ClientURL() })
	require.Eventually(t, func() bool { return one.host.Member.Status().Owned > 0 && two.host.Member.Status().Owned > 0 }, 30*time.Second, 10*time.Millisecond)
	m := kettle("kettle", "kettles")
	require.NoError(t, one.host.AddMachine(t.Context(), m, server.Performs(stove{})))
	const many = 40
	outcomes := map[int]int{}
	for n := range many {
		code, text := one.do("POST", fmt.Sprintf("/v1/kettles/k%d/fill", n), `{"liters":1}`)
		require.Contains(t, []int{200, 404}, code, text)
		outcomes[code]++
	}
	require.Len(t, outcomes, 2, "each owns some of them: %v", outcomes)
	code, text := two.do("GET", "/v1/kettles", "")
	require.Equal(t, 404, code, text)
	require.NoError(t, two.host.AddMachine(t.Context(), m, server.Performs(stove{})))
	var done struct{ Redriven []int }
	require.NoError(t, json.Unmarshal([]byte(two.ok("POST", "/v1/dead-letters/redrive", `{"all":true,"machine":"kettle"}`)), &done))
	require.GreaterOrEqual(t, len(done.Redriven), outcomes[404])
	for _, r := range []*running{one, two} {
		r.comes("/v1/machines/kettle/counts", fmt.Sprintf(`"total":%d`, many))
		r.comes("/v1/machines/kettle/counts", fmt.Sprintf(`"COLD":%d`, many))
	}
	require.NoError(t, two.stop()) // it needs the other's streams
}
