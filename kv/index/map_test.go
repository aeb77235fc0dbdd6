package index_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/index"
)

func TestAMapIsSetWhileOthersLook(t *testing.T) { // not parallel: allocations are those of the process
	var none *index.Map
	require.Nil(t, none.Get("lamp"))
	var x index.Map
	require.Nil(t, x.Get("lamp"))
	var running sync.WaitGroup
	for i := range 8 {
		running.Go(func() {
			ix := new(index.Index)
			name := fmt.Sprint("lamp", i)
			x.Set(name, ix)
			for range 100 {
				if x.Get(name) != ix {
					panic("it is gone")
				}
			}
		})
	}
	running.Wait()
	for i := range 8 {
		require.NotNil(t, x.Get(fmt.Sprint("lamp", i)))
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { x.Get("lamp0") }))
}
