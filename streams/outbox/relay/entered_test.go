package relay

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// A relay that stood still with rows in its hands while another one took its shards parks none of them: they were published.
func TestAZombieParksNothing(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]string{
		"later":   `select outbox_append('order', 'o-1', 'order.paid', '{"n": 2}', not_before => now() + interval '1 second')`,
		"refused": `select outbox_append('order', 'o-1', 'order.new', '{"n": 2}')`,
		"waiting": `select outbox_append('order', 'o-1', 'order.new', '{"n": 2}'), outbox_append('order', 'o-1', 'order.paid', '{"n": 3}')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Log)
			forgotten := s.forgetful()
			old := s.relay(outbox.Log, func(r *Relay) {
				r.Config.Types = &outbox.Types{Names: []string{"order.paid"}, Unknown: outbox.ParkUnknown}
			})
			stands, goes := make(chan struct{}), make(chan struct{})
			var once sync.Once
			old.control.Hook = func(at string) {
				if at == "read" && s.stored() > 0 {
					once.Do(func() { close(stands); <-goes })
				}
			}
			stop := s.run(old)
			s.add("o-1", 1)
			s.eventually(1)
			s.exec(second)
			<-stands
			want := "1 2"
			if name == "waiting" {
				want = "1 2 3"
			}
			s.exec(`select pg_sleep(1)`) // until the row is due
			_, end := s.begin(outbox.Log)
			require.Eventually(t, func() bool { return s.numbered("o-1") == want }, waitFor, tick)
			close(goes)
			require.Eventually(t, func() bool { return old.restarts.Load() > 0 }, waitFor, tick)
			_ = stop()
			_ = end()
			forgotten()
			s.begin(outbox.Log)
			s.add("o-2", 1)
			require.Eventually(t, func() bool { return s.numbered("o-2") == "1" }, waitFor, tick)
			require.Zero(t, s.count(`select count(*) from outbox_parked`))
			require.Equal(t, want, s.numbered("o-1"))
		})
	}
}
