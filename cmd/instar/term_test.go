package main

import (
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The start hangs: the server that it attaches to says nothing.
func TestATermDuringAStartEndsTheProcess(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	asked := make(chan struct{})
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			close(asked)
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	p := launch(t, "serve", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--nats-url", "nats://"+listener.Addr().String(), "--gateway", "simulated", "--postgres", "off")
	<-asked
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-p.ends:
		require.Error(t, err, "it did not get to its end")
	case <-time.After(40 * time.Second):
		t.Fatal("it goes on")
	}
}
