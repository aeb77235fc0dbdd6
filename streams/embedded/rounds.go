package embedded

import (
	"sync"
	"time"
)

// rounds are what a goroutine does again and again.
type rounds struct {
	loop  sync.WaitGroup
	quit  chan struct{}
	ended sync.Once
}

// begin does one at each tick, until end. When one says that there is nothing more to do, there are no ticks until it is woken.
func (r *rounds) begin(every time.Duration, woken <-chan struct{}, one func() (more bool)) {
	r.quit = make(chan struct{})
	r.loop.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if one() {
					continue
				}
			case <-r.quit:
				return
			}
			tick.Stop()
			select {
			case <-woken:
				tick.Reset(every)
			case <-r.quit:
				return
			}
		}
	})
}

// end returns when the last one has ended. It may be called again.
func (r *rounds) end() {
	r.ended.Do(func() { close(r.quit) })
	r.loop.Wait()
}
