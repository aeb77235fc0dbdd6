// Package logs makes the stream of log lines, which has those of the tasks and of the releases of tenants: the last ones of each entity.
package logs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Bounds of logs, beyond which the oldest lines are removed.
const (
	lines   = 1000      // of one entity
	atMost  = 256 << 20 // bytes of all
	age     = 14 * 24 * time.Hour
	largest = 64 << 10 // bytes of a line
)

// Ensure makes the stream where it is not there: what is there is left alone. Where the store is too small for its bound, it gets less.
func Ensure(ctx context.Context, js jetstream.JetStream, names streams.Names, replicas int) error {
	logs := jetstream.StreamConfig{
		Name: names.Stream(streams.LogStream), Description: "Log lines of tasks and of tenants' releases, the last ones of each", Subjects: []string{names.Under("log")}, Replicas: max(replicas, 1),
		MaxMsgsPerSubject: lines, MaxBytes: atMost, MaxAge: age, Discard: jetstream.DiscardOld, AllowDirect: true, MaxMsgSize: largest,
	}
	_, err := js.Stream(ctx, logs.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, logs)
		for ; tooLarge(err) && logs.MaxBytes > 1<<20; _, err = js.CreateStream(ctx, logs) {
			logs.MaxBytes /= 4
		}
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another node was first, with another bound
		return fmt.Errorf("cannot make the stream of logs: %w", err)
	}
	return nil
}

// tooLarge reports whether a stream was refused because the store has not the room that it is bound to (insufficient storage, storage resources exceeded, resource limits).
func tooLarge(err error) bool {
	var refused *jetstream.APIError
	return errors.As(err, &refused) && (refused.ErrorCode == 10047 || refused.ErrorCode == 10028 || refused.ErrorCode == 10002)
}
