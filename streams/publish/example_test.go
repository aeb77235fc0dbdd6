package publish_test

import (
	"errors"
	"fmt"

	"github.com/bcc94042/instar/streams/publish"
)

// Writing it again helps unless it is permanent. A conflict is neither: somebody else wrote first.
func ExamplePermanent() {
	tooLarge := &publish.RefusedError{Code: 10054, Description: "message size exceeds maximum allowed"}
	full := &publish.RefusedError{Code: 10023, Description: "insufficient resources"}
	moved := &publish.RefusedError{Code: 10071, Description: "wrong last sequence: 8"}
	for _, err := range []error{tooLarge, full, moved} {
		fmt.Println(publish.Permanent(err), publish.OutOfRoom(err), errors.Is(err, publish.ErrConflict))
	}
	// Output:
	// true false false
	// false true false
	// false false true
}
