package embedded_test

import (
	"fmt"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
)

// A user's subjects are checked before the server starts: none may give the rights of the control plane.
func ExampleUser_Check() {
	u := embedded.User{Name: "ci", Password: "secret", Publish: []string{"instar.evt.>"}, Subscribe: []string{"instar.evt.>"}}
	fmt.Println(u.Check(streams.Names{}))
	u.Publish = []string{"instar.api.get.>"}
	fmt.Println(u.Check(streams.Names{}))
	// Output:
	// publish: "instar.evt.>" is written by the control plane only
	// <nil>
}
