package cli

import (
	"bufio"
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
)

// A stream ends quietly with its reader, also when it has nothing to write.
func TestStreamsEndWithTheirReader(t *testing.T) {
	t.Parallel()
	const entity = `{"machine":"service","namespace":"default","id":"web","state":"READY","version":4,"revision":42,"updatedAt":"2026-01-02T03:04:05Z"}`
	found := `{"service":"web","namespace":"default","index":7,"instances":[{"instanceId":"w1","address":"127.0.0.1:80","state":"active.healthy","weight":100}]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/services/web/events":
			if r.URL.Query().Get("after") == "" {
				answer(w, 200, `{"items":[{"seq":7,"type":"service.ready","time":"2026-01-02T03:04:05Z","version":1,"from":"CREATING","to":"READY"}],"nextCursor":""}`)
				return
			}
			answer(w, 200, `{"items":[],"nextCursor":""}`)
			return
		case "/v1/discover/web/watch":
			_, _ = w.Write([]byte("id: 7\nevent: snapshot\ndata: " + found + "\n\n"))
		default:
			_, _ = w.Write([]byte("id: 42\nevent: entity\ndata: " + entity + "\n\n"))
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	for _, args := range [][]string{
		{"service", "watch"}, {"service", "watch", "web", "-o", "json"}, {"entity", "watch", "service"}, {"service", "events", "web", "-F"}, {"discover", "web", "--watch"},
	} {
		t.Run(args[0]+"-"+args[1], func(t *testing.T) {
			t.Parallel()
			read, write, err := os.Pipe()
			require.NoError(t, err)
			t.Cleanup(func() { _ = read.Close() })
			cmd := exec.Command(os.Args[0], append(args, "--server", server.URL)...) // see TestMain
			var errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = write, &errs
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			require.NoError(t, write.Close())
			_, err = bufio.NewReader(read).ReadByte()
			require.NoError(t, err)
			require.NoError(t, read.Close()) // what head does
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				t.Fatal("it goes on without a reader")
			}
			require.Equal(t, command.ExitUnread, cmd.ProcessState.ExitCode())
			require.Empty(t, errs.String())
		})
	}
}
