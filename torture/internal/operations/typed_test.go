package operations

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The part operations types the blocks of commands of the document one by one: none may be added that it does not know.
func TestBlocksOfTheDocumentOfOperations(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", operationsDoc))
	require.NoError(t, err)
	for section, want := range map[string]int{"Upgrades": 2, "Rotating": 3, "When the disk is full": 2, "Backup": 2} {
		require.Len(t, blocks(string(raw), section), want, section)
	}
	require.Equal(t, []string{"a\nb\n", "c\n"}, blocks("## x\n\n```sh\na\nb\n```\n\n```\nnone\n```\n\n```sh\nc\n```\n\n## y\n\n```sh\nd\n```\n", "x"))
	require.Equal(t, "    - name: ci\n", tokenLines("Into the configuration:\n\nauth:\n  tokens:\n    - name: ci\n"))
}
