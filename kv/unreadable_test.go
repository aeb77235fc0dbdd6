package kv

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/kvtest"
	"github.com/bcc94042/instar/streams"
)

const noMessage = `{"error":{"code":404,"err_code":10037,"description":"no message found"}}`

// The server says "no message found" for whatever it cannot read, as after EIO.
func TestAnUnreadableValueIsNotAbsent(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	broken := true
	js := n.Faulty(t, func(request string) string {
		if broken && strings.HasPrefix(request, "STREAM.MSG.GET.") {
			return noMessage
		}
		return ""
	})
	b, err := Open(t.Context(), js, "things", JSON[thing]())
	require.NoError(t, err)
	_, err = b.Get(t.Context(), "default.web")
	require.ErrorIs(t, err, ErrNotFound, "there is none")

	n.Put(t, "things", "default.web", `{"state":"ready"}`)
	_, err = b.Get(t.Context(), "default.web")
	require.ErrorIs(t, err, streams.ErrUnreadable)
	require.NotErrorIs(t, err, ErrNotFound)

	broken = false
	e, err := b.Get(t.Context(), "default.web")
	require.NoError(t, err)
	require.Equal(t, "ready", e.Value.State)
	n.Remove(t, "things", "default.web")
	_, err = b.Get(t.Context(), "default.web")
	require.ErrorIs(t, err, ErrNotFound, "it was deleted")
}

// A leader that does not answer has not said that there is none.
func TestSilenceIsNotAbsence(t *testing.T) {
	t.Parallel()
	n := kvtest.Start(t)
	n.Create(t, "things")
	away, alone := false, false
	js := n.Faulty(t, func(request string) string {
		switch {
		case strings.HasPrefix(request, "STREAM.MSG.GET."):
			return noMessage
		case alone && strings.HasPrefix(request, "STREAM.INFO."):
			return `{"cluster":{"name":"c","replicas":[{"name":"b"}]}}`
		case away && strings.HasPrefix(request, "STREAM.INFO."):
			return `{"error":{"code":503,"err_code":10008,"description":"JetStream system temporarily unavailable"}}`
		}
		return ""
	})
	b, err := Open(t.Context(), js, "things", JSON[thing]())
	require.NoError(t, err)
	away = true
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = b.Get(ctx, "default.web")
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNotFound)
	alone = true // a member without a leader speaks for itself
	_, err = b.Get(ctx, "default.web")
	require.Error(t, err)
	require.NotErrorIs(t, err, ErrNotFound)
}
