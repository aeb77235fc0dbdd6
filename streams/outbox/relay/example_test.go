package relay_test

import (
	"fmt"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
)

// The slot of mode wal, for an administrator who looks after the disk of the database.
func ExampleSlot() {
	fmt.Println(relay.Slot(outbox.Config{Name: "shop-eu"}))
	fmt.Println(relay.Slot(outbox.Config{Name: "shop-eu", Slot: "events"}))
	// Output:
	// instar_outbox_shop_eu
	// events
}

// A relay listens where applications wake it; they need not import it.
func ExampleWakeSubject() {
	w := outbox.Waker{Source: "shop", Prefix: "staging"}
	fmt.Println(relay.WakeSubject(streams.Names{Prefix: "staging"}, "shop") == w.Subject(), w.Subject())
	// Output: true staging.outbox.wake.shop
}
