package server

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/machines/registry"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/disk"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// A server that is stuck takes the process with it, and the log says why. Other errors of a look do not.
func TestAStuckStoreEndsTheProcess(t *testing.T) {
	t.Parallel()
	said := &lockedbuffer.Buffer{}
	a := newApp(config.Config{}, Options{}, &registry.Registry{}, slog.New(slog.NewTextHandler(said, nil)))
	var codes []int
	a.dog.out, a.dog.exit = said, func(code int) { codes = append(codes, code) }
	var failed error
	d := &disk.Watch{Log: a.log, Stuck: a.stuck, Room: func(context.Context) (streams.Room, error) { return streams.Room{}, failed }}
	failed = errors.New("it is restarting")
	d.Begin(t.Context())
	require.NoError(t, d.Err())
	require.Empty(t, codes)
	failed = embedded.ErrSlow
	d.Begin(t.Context())
	require.ErrorContains(t, d.Err(), "does not say how it stands", "a disk that stands still, or a large purge")
	require.Empty(t, codes)
	failed = embedded.ErrStuck
	d.Begin(t.Context())
	require.Error(t, d.Err())
	require.Equal(t, []int{1}, codes)
	require.Contains(t, said.String(), "the process ends, so that the next one can store again")
	require.Contains(t, said.String(), "lacksRoom", "what hangs")
}
