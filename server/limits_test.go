package server

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheSmallerOfTwoBounds(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{0, 5, 5, 3}, []int{least(0, 0), least(0, 5), least(5, 0), least(5, 3)}, "0 is none")
}
