package certificates_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/certificates"
)

// Other processes of these tests are the tests' own program.
const otherURL, otherDoes = "CERTIFICATES_OTHER_URL", "CERTIFICATES_OTHER_DOES"

func TestMain(m *testing.M) {
	if url := os.Getenv(otherURL); url != "" {
		if err := other(url, os.Getenv(otherDoes)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func other(url, does string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	s := of(new(testing.T), js)
	if does == "count" {
		return count(context.Background(), s)
	}
	if err := s.Lock(context.Background(), "issue"); err != nil {
		return err
	}
	fmt.Println("locked")
	select {}
}

const counts = 4

// count adds to a number that somebody else adds to at the same time, which only the lock makes right.
func count(ctx context.Context, s certmagic.Storage) error {
	for range counts {
		if err := s.Lock(ctx, "count"); err != nil {
			return err
		}
		text, err := s.Load(ctx, "number")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(text))
		if err != nil {
			return err
		}
		if err := s.Store(ctx, "number", []byte(strconv.Itoa(n+1))); err != nil {
			return err
		}
		if err := s.Unlock(ctx, "count"); err != nil {
			return err
		}
	}
	return nil
}

func process(t *testing.T, nc *nats.Conn, does string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), otherURL+"="+nc.ConnectedUrl(), otherDoes+"="+does)
	cmd.Stderr = t.Output()
	return cmd
}

func TestOneProcessAtATime(t *testing.T) {
	t.Parallel()
	s, n := setup(t)
	require.NoError(t, s.Store(t.Context(), "number", []byte("0")))
	cmd := process(t, n.NC, "count")
	require.NoError(t, cmd.Start())
	here := make(chan error, 1)
	go func() { here <- count(t.Context(), s) }()
	require.NoError(t, count(t.Context(), s), "also twice in one process")
	require.NoError(t, <-here)
	require.NoError(t, cmd.Wait())
	text, err := s.Load(t.Context(), "number")
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(3*counts), string(text))
}

func TestALockEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	s, n := setup(t)
	cmd := process(t, n.NC, "hold")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "locked\n", line)

	ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond) // two lives, and it is renewed
	defer cancel()
	require.ErrorIs(t, s.Lock(ctx, "issue"), context.DeadlineExceeded)
	ok, err := s.TryLock(t.Context(), "issue")
	require.NoError(t, err)
	require.False(t, ok)

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.NoError(t, s.Lock(t.Context(), "issue"))
	require.NoError(t, s.Unlock(t.Context(), "issue"))
}

func TestALockIsGivenBack(t *testing.T) {
	t.Parallel()
	s, n := setup(t)
	second := of(t, n.JS)
	ctx := t.Context()
	require.ErrorContains(t, s.Unlock(ctx, "a b"), "not locked")
	ended, cancel := context.WithCancel(ctx)
	require.NoError(t, s.Lock(ended, "a b"))
	cancel() // which ends no lock that is held
	require.NoError(t, s.Lock(ctx, "a/b"), "another name")
	ok, err := second.TryLock(ctx, "a b")
	require.NoError(t, err)
	require.False(t, ok)
	require.ErrorContains(t, second.Unlock(ctx, "a b"), "not locked")

	require.NoError(t, s.Unlock(ctx, "a b"))
	ok, err = second.TryLock(ctx, "a b")
	require.NoError(t, err)
	require.True(t, ok, "at once")
	require.NoError(t, s.Close(ctx))
	ok, err = second.TryLock(ctx, "a/b")
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, second.Close(ctx))

	n.Stop()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	require.Error(t, s.Lock(short, "c"))
	n.Restart(t)
}

// While the server is away for longer than a life, nobody else takes a lock either: its holder has it again.
func TestALockOutlivesTheServer(t *testing.T) {
	t.Parallel()
	s, n := setup(t)
	require.NoError(t, s.Lock(t.Context(), "a"))
	n.Stop()
	gone, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	<-gone.Done()
	n.Restart(t)
	require.Eventually(t, n.NC.IsConnected, 10*time.Second, 5*time.Millisecond)
	second := of(t, n.JS)
	wait, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	require.ErrorIs(t, second.Lock(wait, "a"), context.DeadlineExceeded)
	require.NoError(t, s.Unlock(t.Context(), "a"))
	require.NoError(t, second.Lock(t.Context(), "a"))
	require.NoError(t, second.Close(t.Context()))
}

func ExampleNew() {
	var js jetstream.JetStream   // of a connection
	var keys certificates.Sealer // tink's AEAD is one
	storage := certificates.New(js, "certificates", 15*time.Second, keys)
	config := certmagic.Config{Storage: storage}
	fmt.Println(config.Storage)
	// Output: bucket certificates
}
