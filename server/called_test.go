package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/server"
)

// A machine whose addition was given up is not added, also when its provider does not look at that, and before the server acts.
func TestAMachineIsGivenUpBeforeTheServerActs(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir(), server.Options{Machines: []*machines.Machine{door()}, Open: func(ctx context.Context, h *server.Host) error {
		ctx, cancel := context.WithCancel(ctx)
		require.ErrorIs(t, h.AddMachine(ctx, kettle("kettle", "kettles"), server.Provider{Open: func(ctx context.Context, _ *server.Host) (server.Work, error) {
			cancel()
			require.ErrorIs(t, canceled(ctx), context.Canceled)
			return server.Work{Performer: stove{}}, nil
		}}), context.Canceled)
		return nil
	}})
	require.Nil(t, r.host.Deps.Machines.Get("kettle"))
}

// What a provider does when its machine is served may be to add another one; the server waits for it when it stops.
func TestAProviderThatAddsAMachineWhenItsOwnIsServed(t *testing.T) {
	t.Parallel()
	r := start(t, t.TempDir(), server.Options{Machines: []*machines.Machine{door()}})
	serves := func(do func(context.Context, *server.Host) error) server.Provider {
		return server.Provider{Open: func(_ context.Context, h *server.Host) (server.Work, error) {
			h.Serving(func(ctx context.Context, _ string) error { return do(ctx, h) })
			return server.Work{Performer: stove{}}, nil
		}}
	}
	require.NoError(t, r.host.AddMachine(t.Context(), kettle("kettle", "kettles"), serves(func(ctx context.Context, h *server.Host) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return h.AddMachine(ctx, kettle("pot", "pots"), server.Performs(stove{}))
	})))
	r.ok("POST", "/v1/pots/p/fill", `{"liters":1}`)

	serving, stopped, added := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		added <- r.host.AddMachine(t.Context(), kettle("pan", "pans"), serves(func(ctx context.Context, h *server.Host) error {
			close(serving)
			err := canceled(ctx)
			h.OnStop("the gas", func(context.Context) error { close(stopped); return nil })
			return err
		}))
	}()
	<-serving
	require.NoError(t, r.stop())
	<-stopped
	require.NoError(t, <-added, "what Serving returns when the server stops is not the machine's")
}

// A server that is told to stop while it starts does not wait for a provider that does.
func TestAProviderIsOpenedWhenTheServerStops(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]func(wait func(context.Context) error) server.Options{
		"Provider.Open": func(wait func(context.Context) error) server.Options {
			return server.Options{Providers: map[string]server.Provider{"door": {Open: func(ctx context.Context, _ *server.Host) (server.Work, error) {
				return server.Work{}, wait(ctx)
			}}}}
		},
		"Options.Open": func(wait func(context.Context) error) server.Options {
			return server.Options{Open: func(ctx context.Context, _ *server.Host) error { return wait(ctx) }}
		},
		"Serving": func(wait func(context.Context) error) server.Options {
			return server.Options{Open: func(_ context.Context, h *server.Host) error {
				h.Serving(func(ctx context.Context, _ string) error { return wait(ctx) })
				return nil
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			options := o(func(ctx context.Context) error { cancel(); return canceled(ctx) })
			options.Machines = []*machines.Machine{door()}
			require.ErrorIs(t, server.Run(ctx, settings(t.TempDir()), options), context.Canceled)
		})
	}
}

// What a provider started has ended with the context of its call, so nothing is opened after it, also if it did not look.
func TestNothingIsOpenedAfterAStop(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	err := server.Run(ctx, settings(t.TempDir()), server.Options{
		Machines: []*machines.Machine{door()},
		Providers: map[string]server.Provider{"door": {Open: func(ctx context.Context, _ *server.Host) (server.Work, error) {
			cancel()
			<-ctx.Done()
			return server.Work{}, nil
		}}},
		Open: func(context.Context, *server.Host) error {
			t.Error("opened after the stop")
			return nil
		},
	})
	require.ErrorContains(t, err, "the server stops")
}

// A connection that is closed for good ends the server, which says by whom when NATS does not.
func TestAConnectionThatIsClosedForGood(t *testing.T) {
	t.Parallel()
	require.EqualError(t, server.Run(t.Context(), settings(t.TempDir()), server.Options{Machines: []*machines.Machine{door()}, Open: func(_ context.Context, h *server.Host) error {
		nc, _, err := h.Connect("gas")
		nc.Close()
		return err
	}}), `the connection "gas" to NATS was closed for good: by whoever has it`)
}
