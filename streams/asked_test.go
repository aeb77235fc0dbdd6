package streams

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// lossy loses each first request of a kind for a stream, as a connection does that breaks with it.
type lossy struct {
	jetstream.JetStream
	asked map[string]int
}

func (l *lossy) loses(ctx context.Context, what string) error {
	if l.asked[what]++; l.asked[what] > 1 {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (l *lossy) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if err := l.loses(ctx, "look at "+name); err != nil {
		return nil, err
	}
	return nil, jetstream.ErrStreamNotFound
}

func (l *lossy) CreateStream(ctx context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	return nil, l.loses(ctx, "create "+c.Name)
}

// A start asks again for what was lost with a connection, and does not wait until its time is over.
func TestWhatIsLostWithAConnectionIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		js := &lossy{asked: map[string]int{}}
		began := time.Now()
		c := jetstream.StreamConfig{Name: "COMMANDS", Replicas: 1}
		info, err := find(ctx, js, c)
		require.NoError(t, err)
		require.Nil(t, info)
		_, err = create(ctx, js, c)
		require.NoError(t, err)
		require.Equal(t, map[string]int{"look at COMMANDS": 2, "create COMMANDS": 2}, js.asked)
		require.Equal(t, 2*askedWithin, time.Since(began))
	})
}
