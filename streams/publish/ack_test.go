package publish

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Every error that the server has is classified, and a code that another version adds, or gives another meaning, shows in the
// diff of the table. What is not of the message is never permanent: not room, limits, rates, elections or configuration.
func TestErrorsOfTheServerAreClassified(t *testing.T) {
	t.Parallel()
	var table []string
	known := map[int]bool{}
	for _, e := range server.ApiErrors {
		err := fmt.Errorf("cannot write: %w", &RefusedError{Code: int(e.ErrCode), Description: e.Description})
		class := "wait"
		switch conflict := errors.Is(err, ErrConflict); {
		case conflict && Permanent(err):
			class = "both"
		case conflict:
			class = "conflict"
		case Permanent(err):
			class = "permanent"
			require.Equal(t, 400, e.Code, "%d blames the server, not the message", e.ErrCode)
		}
		known[int(e.ErrCode)] = true
		table = append(table, fmt.Sprintf("%d %-9s %s", e.ErrCode, class, e.Description))
	}
	for code := range permanent {
		require.True(t, known[code], "the server has no error %d", code)
	}
	slices.Sort(table)
	have := strings.Join(table, "\n") + "\n"
	const golden = "testdata/errors.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(have), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), have, "run make update, and read what the server changed")
}

func TestWhatIsNoAnswerIsNotPermanent(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errNoStream, errMoved, ErrUnanswered, ErrClosed, ErrConflict, nats.ErrConnectionClosed, &RefusedError{Code: 99999}} {
		require.False(t, Permanent(err), "%v", err)
	}
	for _, err := range []error{nats.ErrMaxPayload, streams.ErrSubject} {
		require.True(t, Permanent(fmt.Errorf("cannot send: %w", err)))
	}
}

// What a command is refused for that has room neither now nor ever is not stored; what the store says in words, that the id is on its way already, or an earlier try leave it open.
func TestARefusalSaysWhetherTheCommandIsStored(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]bool{10167: true, 10002: true, 10023: true, 10028: true, 10047: true, 10054: true, 10077: false, codeDuplicateInFlight: false} {
		err := error(&RefusedError{Code: code})
		require.Equal(t, want, NotStored(fmt.Errorf("x: %w", err)), code)
		require.False(t, NotStored(errors.Join(ErrUnanswered, err)), code)
	}
	require.True(t, NotStored(nats.ErrMaxPayload))
	require.False(t, NotStored(nil))
}

func TestOutOfRoom(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]bool{10023: true, 10002: true, 10047: true, 10071: false} {
		err := fmt.Errorf("x: %w", &RefusedError{Code: code})
		require.Equal(t, want, OutOfRoom(err))
		require.False(t, Permanent(err))
	}
	require.False(t, OutOfRoom(nil))
}
