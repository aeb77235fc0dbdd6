package streams

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// reachable is how long a consumer that was just made may take to be known by all servers of a cluster.
const reachable = 2 * time.Second

// Fetch hands over up to n messages of a consumer that was just made, and returns how many came within five seconds. In a cluster the answer that the consumer is
// there may come before the routes know of it: whoever asks it for messages hears that nobody responds, and is asked again here for two seconds.
func Fetch(ctx context.Context, cons jetstream.Consumer, n int, take func(jetstream.Msg) error) (int, error) {
	for began, came := time.Now(), 0; ; {
		batch, err := cons.Fetch(n, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			return came, err
		}
		for msg := range batch.Messages() {
			came++
			if err := take(msg); err != nil {
				return came, err
			}
		}
		err = batch.Error()
		if came > 0 || !errors.Is(err, nats.ErrNoResponders) || time.Since(began) > reachable {
			return came, err
		}
		select {
		case <-ctx.Done():
			return came, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
