package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/demo/demotest"
)

func TestMain(m *testing.M) { demotest.Main(m, Command(&command.Program{}).Commands()...) }

// What ends by itself is started again where that is wanted, until it is killed.
func TestAProcessThatEndsIsStartedAgain(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{true, false} {
		p := &demoProcess{args: []string{"-test.run=^$"}, log: filepath.Join(t.TempDir(), "log"), again: again} // this test, which does nothing and ends
		require.NoError(t, p.start())
		starts := func() int {
			raw, err := os.ReadFile(p.log)
			require.NoError(t, err)
			return strings.Count(string(raw), "PASS")
		}
		if !again {
			<-p.ended
			require.ErrorContains(t, p.Kill(), "had ended by itself")
			require.Equal(t, 1, starts())
			continue
		}
		require.Eventually(t, func() bool { return starts() > 1 }, time.Minute, 10*time.Millisecond)
		require.NoError(t, p.Kill())
		require.Zero(t, p.PID())
	}
}
