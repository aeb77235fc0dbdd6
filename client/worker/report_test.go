package worker

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/streams"
)

// odd is an error that a nil pointer cannot tell, and a result that cannot be encoded.
type odd struct{ text string }

func (o *odd) Error() string             { return o.text }
func (odd) MarshalJSON() ([]byte, error) { panic("broken") }

// What a handler returns fails its task at worst, and never the worker.
func TestOddReturns(t *testing.T) {
	t.Parallel()
	w := setup(t)
	k, err := New(Options{NC: w.connect()})
	require.NoError(t, err)
	Handle(k, Effect{Machine: "thing", Name: "work", Done: consumertest.Things.Effects[0].Done}, func(_ context.Context, t Task[how]) (any, error) {
		switch t.ID {
		case "failure":
			var f *Failure
			return how{"worked"}, f
		case "error":
			var e *odd
			return how{"worked"}, e
		case "result":
			return odd{}, nil
		}
		return how{"worked"}, nil
	})
	w.Also(k.Run)
	for _, id := range []string{"failure", "error", "result", "well"} {
		w.ask(id, "x")
	}
	for id, message := range map[string]string{"failure": "the handler returned a nil failure", "error": "the worker failed unexpectedly", "result": "the worker failed unexpectedly"} {
		failure := w.Reaches(id, "broken").LastError
		require.Equal(t, []string{"internal", message}, []string{failure.Code, failure.Message})
	}
	require.Equal(t, "worked", w.Reaches("well", "open").Data.(*consumertest.Thing).Text)
	w.Eventually("all tasks are acknowledged", func() bool { return len(w.Stream(streams.EffectStream, "instar.fx.>")) == 0 })
}
