package hosted_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/platform/hosted"
)

// idle is an engine that has no units, and counts which were to be started.
type idle struct {
	started atomic.Int32
	awaited string // image that it gets for as long as it may
}

func (*idle) Kind() string            { return "idle" }
func (*idle) Check(app.Program) error { return nil }

func (i *idle) Prepare(ctx context.Context, p app.Program, _ func(string)) error {
	if i.awaited != "" && p.Image == i.awaited {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (i *idle) Start(context.Context, *hosted.Unit) error {
	i.started.Add(1)
	return nil
}

func (*idle) Look(context.Context, *hosted.Unit) (hosted.State, error) {
	return hosted.State{}, providers.Errorf(providers.NotFound, "there is none")
}

// Remove fails, as it would of a server that is killed before it.
func (*idle) Remove(context.Context, *hosted.Unit) error {
	return providers.Errorf(providers.Unavailable, "it is away")
}

// A server that ends before it has written the secrets of a release leaves nothing that the next one starts.
func TestNothingIsStartedWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	e := &idle{}
	c := config(t, e)
	a, err := hosted.Open(c)
	require.NoError(t, err)
	obstacle := filepath.Join(c.Dir, "releases", "default.tenant-acme-r1", "home")
	require.NoError(t, os.MkdirAll(filepath.Dir(obstacle), 0o700))
	require.NoError(t, os.WriteFile(obstacle, nil, 0o600))
	_, err = a.Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.ErrorContains(t, err, "cannot make the directory of tenant-acme-r1")
	raw, err := os.ReadFile(filepath.Join(filepath.Dir(obstacle), "release.json"))
	require.NoError(t, err)
	var has struct{ Unit struct{ Port int } }
	require.NoError(t, json.Unmarshal(raw, &has))
	require.Zero(t, has.Unit.Port, "it had no place, which the next server would have found, before its secrets were written")
	require.NoError(t, a.Close(false))
	require.NoError(t, os.Remove(obstacle))
	a, err = hosted.Open(c) // which looks at what is known, before Close returns
	require.NoError(t, err)
	require.NoError(t, a.Close(false))
	require.Zero(t, e.started.Load())
}

// A server that ends while it removes a release, which may have lost its secrets then, leaves nothing that the next one starts.
func TestWhatIsBeingRemovedIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	e := &idle{}
	c := config(t, e)
	a, err := hosted.Open(c)
	require.NoError(t, err)
	_, err = a.Deploy(t.Context(), apptest.Release(1, "1.0"))
	require.ErrorContains(t, err, "was removed while it started")
	require.ErrorContains(t, a.Remove(t.Context(), apptest.Release(1, "1.0")), "it is away")
	require.NoError(t, a.Close(false))
	before := e.started.Load()
	a, err = hosted.Open(c)
	require.NoError(t, err)
	require.NoError(t, a.Close(false))
	require.Equal(t, before, e.started.Load())
}

// After a restart of the machine, a release whose image takes long keeps no other one down.
func TestNoReleaseWaitsForTheImageOfAnother(t *testing.T) {
	t.Parallel()
	e := &idle{}
	c := config(t, e)
	a, err := hosted.Open(c)
	require.NoError(t, err)
	for n, version := range []string{"1.0", "1.1"} {
		_, err = a.Deploy(t.Context(), apptest.Release(n+1, version))
		require.ErrorContains(t, err, "was removed while it started")
	}
	require.NoError(t, a.Close(false))
	next := &idle{awaited: program("1.0").Image} // of the one that is looked at first
	c.Engine = next
	a, err = hosted.Open(c)
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close(false)) }()
	require.Eventually(t, func() bool { return next.started.Load() > 0 }, time.Minute, time.Millisecond)
}
