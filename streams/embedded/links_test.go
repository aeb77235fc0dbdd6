package embedded

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever the server does to blocks between two syncs, a power loss leaves those of the last one.
func TestLinksAreTheBlocksOfTheLastSync(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		stream := filepath.Join(dir, streamsDir, "KV_things")
		blocks := filepath.Join(stream, blocksDir)
		require.NoError(t, os.MkdirAll(blocks, 0o700))
		file := func(number int) string { return filepath.Join(blocks, fmt.Sprintf("%d%s", number, blockFile)) }
		there, synced, content, last := map[int]int{}, map[int]int{}, 0, 0
		change := func() {
			content++
			number := 1 + random.IntN(last+1)
			switch {
			case number > last: // a new one
				require.NoError(t, os.WriteFile(file(number), fmt.Append(nil, content), 0o600))
				last, there[number] = number, content
			case there[number] == 0:
			case random.IntN(2) == 0: // written anew
				require.NoError(t, os.WriteFile(file(number)+".tmp", fmt.Append(nil, content), 0o600))
				require.NoError(t, os.Rename(file(number)+".tmp", file(number)))
				there[number] = content
			default:
				require.NoError(t, os.Remove(file(number)))
				delete(there, number)
			}
		}
		change()
		l, err := newLinks(stream)
		require.NoError(t, err)
		for range 1 + random.IntN(12) {
			for range random.IntN(6) {
				change()
			}
			now := map[int]int{}
			for number, is := range there {
				now[number] = is
			}
			after, err := l.before()
			require.NoError(t, err)
			for range random.IntN(3) { // while the store is synced
				change()
			}
			if random.IntN(5) == 0 { // that failed
				continue
			}
			require.NoError(t, after())
			synced = now
		}
		for range random.IntN(6) {
			change()
		}
		require.NoError(t, os.WriteFile(filepath.Join(l.dir, runFile), []byte("another mounting"), 0o600))
		require.NoError(t, restoreLinks(dir, false, slog.New(slog.DiscardHandler)))
		require.NoDirExists(t, l.dir)
		if len(synced) == 0 { // a bucket always has a last block
			continue
		}
		left, err := filesOf(blocks)
		require.NoError(t, err)
		require.Len(t, left, len(synced), "seed %d", seed)
		for number, is := range synced {
			raw, err := os.ReadFile(file(number))
			require.NoError(t, err, "seed %d, block %d", seed, number)
			require.Equal(t, fmt.Sprint(is), string(raw), "seed %d, block %d", seed, number)
		}
	}
}
