package platform_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/platform"
)

// An undo that was told to skip the custom domain says so, as the next life of the session knows nothing of it. One that only lets the tenant in takes back nothing, and keeps all.
func TestAnUndoSaysThatTheDomainIsTheTenants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command, body string
		kept          bool
	}{
		{"rollback", `{"skip":["cancel_domain_binding"]}`, true},
		{"resolve", `{"outcome":"rolled_back"}`, true},
		{"rollback", `{"skip":["delete_storage"]}`, false},
		{"resolve", `{"outcome":"ready"}`, false},
	} {
		l := reach(t, "verify", moved)
		l.fail("verify", "unavailable")
		l.step(machines.Input{Command: c.command, Body: json.RawMessage(c.body)})
		i := slices.IndexFunc(l.out.Messages, func(m machines.Message) bool { return m.Kind == machines.KindEffect })
		require.GreaterOrEqual(t, i, 0, c.body)
		var task struct{ Data platform.Task }
		require.NoError(t, json.Unmarshal(l.out.Messages[i].Body, &task))
		require.Equal(t, c.kept, task.Data.Kept, c.body)
	}
}
