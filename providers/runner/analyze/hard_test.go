package analyze

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What was made to be slow is read in a time that grows with its size, and not with the square of it.
func TestTimeGrowsWithSize(t *testing.T) {
	t.Parallel()
	rust := syntaxes["Rust"]
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, strings.ReplaceAll(format, "N", "%[1]d"), i)
		}
		return b.String()
	}
	for name, run := range map[string]func(n int){
		"comments in comments": func(n int) {
			countLines([]byte(strings.Repeat("/*", 10*n)+strings.Repeat("*/", 10*n)), &rust)
		},
		"bill of materials": func(n int) {
			list, err := requirements([]byte(many(n, "pN==1\n")))
			require.NoError(t, err)
			_, err = billOfMaterials(&Input{}, list, false)
			require.NoError(t, err)
		},
		"go.mod": func(n int) {
			_, err := goModules([]byte("module m\n" + many(n/8, "require a.b/pN v1.0.0\nreplace a.b/pN => c.d/pN v1.0.0\n")))
			require.NoError(t, err)
		},
		"Gemfile.lock": func(n int) {
			_, err := gemfileLock([]byte("GEM\n" + many(n, "    pN (1)\n") + "DEPENDENCIES\n" + many(n, "  pN\n")))
			require.NoError(t, err)
		},
	} {
		one, eight := cpu(t, func() { run(2_000) }), cpu(t, func() { run(16_000) })
		require.Less(t, eight, 40*one+50*time.Millisecond, "%s: %s, and for eight times as much %s", name, one, eight)
	}
}

// cpu is the least processor time of five runs.
func cpu(t *testing.T, run func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	at := func() time.Duration {
		var u syscall.Rusage
		const thread = 1 // RUSAGE_THREAD of Linux
		if syscall.Getrusage(thread, &u) != nil {
			t.Skip("this system does not count the time of a thread")
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	least := time.Hour
	for range 5 {
		began := at()
		run()
		least = min(least, at()-began)
	}
	return least
}
