package cli

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/lockedbuffer"
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
