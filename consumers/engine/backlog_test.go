package engine

import (
	"bytes"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/consumertest"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// burdened is the way to a server that takes its time for each question to a stream. What is sent behind a question waits for it: that is harder on
// it than a server is, which answers questions beside what else comes over a connection.
type burdened struct {
	*embedded.Server
	each time.Duration
}

func (burdened) LoopbackURL() string { return "" }

func (b burdened) InProcessConn() (net.Conn, error) {
	c, err := b.Server.InProcessConn()
	return burdenedConn{c, b.each}, err
}

type burdenedConn struct {
	net.Conn
	each time.Duration
}

func (c burdenedConn) Write(b []byte) (int, error) {
	questions := bytes.Count(b, []byte("PUB $JS.API.STREAM.MSG.GET.")) + bytes.Count(b, []byte("PUB $JS.API.STREAM.INFO."))
	time.Sleep(time.Duration(questions) * c.each)
	return c.Conn.Write(b)
}

// Thousands of creates wait when the partitions start, and each of them has to be looked up. Were all of the questions put at once, requests for commands would come too late behind
// them, and partitions that start anew because of that would drop what they know, and put all of their questions again.
func TestManyCreatesThatAreLookedUpDoNotEndPartitions(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	notes := w.tally()
	const waiting = 3000
	for n := range waiting {
		_, err := w.JS.PublishMsgAsync(&nats.Msg{Subject: w.Names.Command("thing", fmt.Sprintf("default.e-%d", n), "create")})
		require.NoError(t, err)
	}
	<-w.JS.PublishAsyncComplete()
	e := &Engine{Deps: w.ApartBy("burdened", burdened{w.Server, 500 * time.Microsecond})} // without an index, each create is looked up
	w.Run(e.Run)
	require.Eventually(t, func() bool {
		info, err := streams.Info(w.Ctx, w.NC, streams.BucketStream("things"))
		return err == nil && info.State.Msgs >= waiting
	}, 3*time.Minute, 100*time.Millisecond)
	require.LessOrEqual(t, notes.restarts.Load(), int64(2*streams.Partitions), "each restart puts all questions of a partition again")
	t.Logf("%d partitions started anew", notes.restarts.Load())
}

// Only where commands were taken may something come again that the index does not know yet.
func TestAPartitionThatCannotStartLeavesSpeculationToTheOthers(t *testing.T) {
	t.Parallel()
	w := setup(t, embedded.Interval, consumertest.Things)
	left := make(chan struct{})
	close(left)
	gone := w.Apart("gone")
	gone.NC.Close()
	e := &Engine{Deps: gone.WithDefaults()}
	(&partition{e: e, name: consumers.PartitionName(0), leave: left}).run(w.Ctx)
	require.Zero(t, e.coolUntil.Load())
}
