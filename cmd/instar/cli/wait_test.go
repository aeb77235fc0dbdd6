package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
)

func TestAWaitEndsWithWhatTheCommandHasBegun(t *testing.T) {
	t.Parallel()
	const began, later = "2026-01-02T03:04:05Z", "2026-01-02T03:04:09Z"
	why := func(at string) string { return `,"lastError":{"code":"WHY","message":"because","at":"` + at + `"}` }
	for args, tc := range map[string]struct {
		state   string // in which the command leaves it
		changes []string
		code    int
		said    string
	}{
		"rollback":     {"failed", []string{`"failed","effects":{"undo":{"id":"a"}}` + why(began), `"rolled_back"` + why(began)}, 0, "rolled_back"},
		"rollback ":    {"failed", []string{`"failed","effects":{"undo":{"id":"a"}}` + why(began), `"failed"` + why(began)}, command.ExitFailed, "ended failed: WHY: because"},
		"revert --yes": {"reverting", []string{`"reverting","effects":{"undo":{"id":"a"}}`, `"rolled_back"`}, 0, "rolled_back"},
		"revert -y":    {"reverting", []string{`"reverting","effects":{"undo":{"id":"a"}}`, `"ready"` + why(later)}, command.ExitFailed, "stays ready: WHY: because"},
		"rotate":       {"ready", []string{`"ready","effects":{"rotate":{"id":"a"}}`, `"ready"`}, 0, "ready"},
		"rotate ":      {"ready", []string{`"ready","effects":{"rotate":{"id":"a"}}`, `"ready"` + why(later)}, command.ExitFailed, "stays ready: WHY: because"},
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					answer(w, 200, fmt.Sprintf(`{"outcome":"applied","state":%q,"version":2,"revision":2,"generation":1,"commandId":"c1"}`, tc.state))
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				for i, change := range tc.changes {
					fmt.Fprintf(w, "id: %d\nevent: entity\ndata: {\"machine\":\"database_provisioning\",\"namespace\":\"default\",\"parent\":\"acme\",\"id\":\"move\",\"version\":%[1]d,\"revision\":%[1]d,\"since\":%q,\"state\":%s}\n\n", i+2, began, change)
				}
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}))
			defer web.Close()
			code, out, said := exitOf1(strings.Fields("database_provisioning " + args + " acme/move --wait --server " + web.URL)...)
			require.Equal(t, tc.code, code, said)
			require.Contains(t, out+said, tc.said)
		})
	}
}
