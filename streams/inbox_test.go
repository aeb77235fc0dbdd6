package streams

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInbox(t *testing.T) {
	t.Parallel()
	for _, yes := range []string{"_INBOX.a.b", "_INBOX_ci.a", "_R_.x.y", "_GR_.c.s._INBOX.a", "_GR_.c.s._R_.x"} {
		require.Equal(t, yes, Inbox(yes))
	}
	for _, no := range []string{
		"", "$KV.services.default.a", "$JS.API.STREAM.DELETE.EVENTS", "$JS.ACK.COMMANDS.in-0.1.1.1.1.0", "instar.cmd.service.default.a.delete", "_R_", "_GR_", "_GR_.c.s",
		"_GR_.c.s.$KV.services.default.a", "_GR_._INBOX.a", "_INBOX.*", "_INBOX.>", "_INBOX. x", "_INBOX.a..b", "_INBOX.", "x._INBOX.a", "_INBOX." + strings.Repeat("y", 255),
	} {
		require.Empty(t, Inbox(no), no)
	}
}
