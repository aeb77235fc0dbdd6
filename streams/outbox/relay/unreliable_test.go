package relay

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
)

// unreliable makes connections break, stand still, and lose the last thing that was sent on them. Each seed has rates of its own: in one connections break all the time, in another
// one they are slow.
type unreliable struct {
	mu               sync.Mutex
	r                *rand.Rand
	cut, lose, delay int       // one in so many reads and writes; 0 is never
	rest             time.Time // no fault until then: an attempt of the relay is to get somewhere
	calm             atomic.Bool
	faults           atomic.Int64
}

func newUnreliable(seed uint64) *unreliable {
	u := &unreliable{r: rand.New(rand.NewPCG(seed, 1))}
	rate := func() int { return []int{0, 10, 30, 90}[u.r.IntN(4)] }
	u.cut, u.lose, u.delay = rate(), rate(), rate()
	if u.cut+u.lose == 0 {
		u.cut = 20
	}
	return u
}

var errCut = errors.New("the connection was cut")

// next draws what happens to what is about to pass. What is lost is told as passed; then the connection breaks.
func (u *unreliable) next() (cut, lose bool, wait time.Duration) {
	if u.calm.Load() {
		return false, false, 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Now().Before(u.rest) {
		return false, false, 0
	}
	one := func(in int) bool { return in > 0 && u.r.IntN(in) == 0 }
	cut, lose = one(u.cut), one(u.lose)
	if one(u.delay) {
		wait = time.Duration(u.r.Int64N(int64(400 * time.Millisecond)))
	}
	if cut || lose || wait > 0 {
		u.faults.Add(1)
		u.rest = time.Now().Add(time.Duration(u.r.Int64N(int64(600 * time.Millisecond))))
	}
	return cut, lose, wait
}

// flaky is one connection.
type flaky struct {
	net.Conn
	u *unreliable
}

func (f flaky) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	cut, lose, wait := f.u.next()
	time.Sleep(wait)
	if cut || lose { // an answer that does not arrive
		_ = f.Close()
		return 0, errCut
	}
	return n, err
}

func (f flaky) Write(b []byte) (int, error) {
	cut, lose, wait := f.u.next()
	time.Sleep(wait)
	if cut { // before it has left
		_ = f.Close()
		return 0, errCut
	}
	n, err := f.Conn.Write(b)
	if lose { // it arrives, and no answer to it
		_ = f.Close()
	}
	return n, err
}

// database returns how to reach a database through connections that are not reliable.
func (u *unreliable) database(t *testing.T, dsn string) string {
	t.Helper()
	to, err := url.Parse(dsn)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer in.Close()
				back, err := net.Dial("tcp", to.Host)
				if err != nil {
					return
				}
				out := flaky{back, u}
				defer out.Close()
				all.Go(func() { _, _ = io.Copy(out, in); _ = in.Close(); _ = out.Close() })
				_, _ = io.Copy(in, out)
			})
		}
	})
	through := *to
	through.Host = l.Addr().String()
	return through.String()
}

// server is the embedded one, reached in the same way.
type server struct {
	*embedded.Server
	u *unreliable
}

func (s server) InProcessConn() (net.Conn, error) {
	c, err := s.Server.InProcessConn()
	if err != nil {
		return nil, err
	}
	return flaky{c, s.u}, nil
}

// Connections to the database and to NATS break in the midst of everything, answers are lost and late: every committed row is in the stream, once and in order.
func TestConnectionsMayBreakAnywhere(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
			t.Run(string(mode), func(t *testing.T) {
				t.Parallel()
				s := openShop(t, mode)
				u := newUnreliable(seed)
				u.calm.Store(true) // until it has begun
				nc, err := streams.Connect(streams.ConnectOptions{Server: server{s.server, u}, Name: "relay"})
				require.NoError(t, err)
				t.Cleanup(nc.Close)
				r := s.relay(mode, func(r *Relay) {
					r.NC.Close()
					r.NC, r.Config.DSN = nc, u.database(t, s.dsn)
					r.JS, err = streams.JetStream(nc)
					require.NoError(t, err)
				})
				s.run(r)
				stop := make(chan struct{})
				wait := s.write(3, stop)
				s.eventually(20)
				u.calm.Store(false)
				for end := time.Now().Add(5 * time.Second); u.faults.Load() < 8 && time.Now().Before(end); {
					<-time.After(tick)
				}
				t.Logf("seed %d: %d faults, %d events stored meanwhile", seed, u.faults.Load(), s.stored())
				close(stop)
				wait()
				u.calm.Store(true)
				require.NotZero(t, u.faults.Load())
				if mode == outbox.Claim {
					s.checkEvents()
				} else {
					s.check()
				}
				require.NotEqual(t, nats.CLOSED, nc.Status())
			})
		}
	}
}
