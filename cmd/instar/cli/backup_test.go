package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/internal/lockedbuffer"
	"github.com/bcc94042/instar/server/builtin"
)

type full struct{ lockedbuffer.Buffer }

var errFull = errors.New("no space left on device")

func (*full) Write([]byte) (int, error) { return 0, errFull }

// A place that takes no more is told as that, and not as a backup that cannot be read.
func TestABackupToAPlaceThatIsFull(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/zstd")
		_, _ = w.Write([]byte("anything"))
	}))
	t.Cleanup(web.Close)
	var said lockedbuffer.Buffer
	require.NotZero(t, execute([]string{"backup", "--to", "-", "--server", web.URL}, strings.NewReader(""), new(full), &said))
	require.Equal(t, "instar: there is no backup: no space left on device\n", said.String())
}

// A restore that is interrupted says what it has left where, and what to do about it; most commands have nothing to say then.
func TestARestoreThatIsInterrupted(t *testing.T) {
	t.Parallel()
	compressed := func(lines string) io.Reader {
		z, err := zstd.NewWriter(nil)
		require.NoError(t, err)
		return bytes.NewReader(z.EncodeAll([]byte(lines), nil))
	}
	ctx, interrupt := context.WithCancel(t.Context())
	options, dir := builtin.Options(), t.TempDir()
	options.Out = io.Discard
	root := rootCommand(&command.Program{Options: options})
	root.SetArgs([]string{"restore", "-", "--data", dir, "--durability", "interval", "--log-level", "error"})
	root.SetIn(io.MultiReader(compressed(`{"head":{"instarBackup":1,"at":"2026-02-01T00:00:00Z","prefix":"instar"}}{"section":{"stream":"KV_operations","kind":"bucket"}}{"m":{"s":"$KV.operations.a"}}`),
		interrupts{t, filepath.Join(dir, "nats", "jetstream", "*", "streams", "COMMANDS", "meta.inf"), interrupt}, compressed(`{"end":{"messages":{"KV_operations":1}}}`)))
	cmd, err := root.ExecuteContextC(ctx)
	require.ErrorIs(t, err, context.Canceled)
	var said bytes.Buffer
	require.Equal(t, command.ExitInterrupted, command.Report(ctx, &said, cmd, err))
	require.Contains(t, said.String(), "a restore of these streams did not end")
	require.Contains(t, said.String(), "remove "+filepath.Join(dir, "nats")+" before the next restore")

	said.Reset()
	require.Equal(t, command.ExitInterrupted, command.Report(ctx, &said, cmd, fmt.Errorf("asked: %w", context.Canceled)))
	require.Empty(t, said.String())
}

// interrupts is the place in a backup where somebody does, once there is what it was to fill. What is read there may be read ahead.
type interrupts struct {
	t     *testing.T
	there string // pattern
	end   context.CancelFunc
}

func (i interrupts) Read([]byte) (int, error) {
	assert.Eventually(i.t, func() bool {
		found, err := filepath.Glob(i.there)
		return err == nil && len(found) > 0
	}, 30*time.Second, time.Millisecond)
	i.end()
	return 0, io.EOF
}
