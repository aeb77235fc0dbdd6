package backup

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

// A value that is replaced again and again while its bucket is read is read, whichever of its places it has then.
func TestAValueThatMovesIsRead(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	_, err := e.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "VALUES", Subjects: []string{"value.>"}, MaxMsgsPerSubject: 1, AllowDirect: true})
	require.NoError(t, err)
	for i := range 20 {
		_, err := e.JS.Publish(t.Context(), fmt.Sprint("value.", i), nil)
		require.NoError(t, err)
	}
	for i := range 2 {
		_, err := e.JS.Publish(t.Context(), fmt.Sprint("value.web.", i), nil)
		require.NoError(t, err)
	}
	stop := make(chan struct{})
	var writing sync.WaitGroup
	for n := range 2 {
		writing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = e.JS.Publish(t.Context(), fmt.Sprint("value.web.", n), []byte("x"))
				}
			}
		})
	}
	defer writing.Wait()
	defer close(stop)
	for n := range 100 {
		seen := map[string]bool{}
		require.NoError(t, each(t.Context(), e.JS, "VALUES", func(m jetstream.Msg, _ *jetstream.MsgMetadata) (bool, error) {
			seen[m.Subject()] = true
			return true, nil
		}))
		require.Len(t, seen, 22, "in round %d", n)
	}
}

// A stream whose last messages are gone, purged or expired, ends with the last one that it has, wherever its consumers say that they stand.
func TestAStreamWithoutItsLastMessagesEnds(t *testing.T) {
	t.Parallel()
	e := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	s, err := e.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: "VALUES", Subjects: []string{"value.>"}, MaxMsgsPerSubject: 1})
	require.NoError(t, err)
	for _, key := range []string{"c", "a", "b"} {
		_, err := e.JS.Publish(t.Context(), "value."+key, nil)
		require.NoError(t, err)
	}
	require.NoError(t, s.Purge(t.Context(), jetstream.WithPurgeSubject("value.b")))
	ctx, cancel := context.WithTimeout(t.Context(), silence/2)
	defer cancel()
	var seen []string
	require.NoError(t, each(ctx, e.JS, "VALUES", func(m jetstream.Msg, _ *jetstream.MsgMetadata) (bool, error) {
		if seen = append(seen, m.Subject()); m.Subject() == "value.a" { // a purge moves a consumer that has come to the end
			require.NoError(t, s.Purge(ctx, jetstream.WithPurgeSubject("value.c")))
		}
		return true, nil
	}))
	require.Equal(t, []string{"value.c", "value.a"}, seen)
}
