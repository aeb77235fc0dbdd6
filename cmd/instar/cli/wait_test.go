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
	const before, began, later, last = "2026-01-02T03:04:01Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:09Z", "2026-01-02T03:04:10Z"
	why := func(at string) string { return `,"lastError":{"code":"WHY","message":"because","at":"` + at + `"}` }
	const (
		undoing = `,"effects":{"undo":{"id":"a"}}`
		stuck   = `,"data":{"phase":"rollback_stuck"}`
		asks    = `,"data":{"phase":"waiting_approval"}`
		paused  = `,"data":{"phase":"paused"}`
		since   = `,"since":"` + last + `"`
		upgrade = "instance_provisioning upgrade --wait"
		move    = "database_provisioning "
	)
	for name, tc := range map[string]struct {
		args    string
		state   string // in which the command leaves it
		row     string // of the snapshot that the watch begins with
		changes []string
		code    int
		said    string
	}{
		"undone":            {move + "rollback --wait", "failed", "", []string{`"failed"` + undoing + why(began), `"rolled_back"` + why(began)}, 0, "rolled_back"},
		"not undone":        {move + "rollback --wait", "failed", "", []string{`"failed"` + undoing + why(began), `"failed"` + why(began)}, command.ExitFailed, "ended failed: WHY: because"},
		"in a row":          {move + "rollback --wait", "failed", "failed", []string{`"failed"` + undoing + why(began), `"rolled_back"` + why(began)}, 0, "rolled_back"},
		"reverted":          {move + "revert --yes --wait", "reverting", "", []string{`"reverting"` + undoing, `"rolled_back"`}, 0, "rolled_back"},
		"turned back":       {move + "revert --yes --wait", "reverting", "", []string{`"reverting"` + undoing, `"ready"` + why(later)}, command.ExitFailed, "stays ready: WHY: because"},
		"stuck":             {move + "revert --yes --wait", "reverting", "", []string{`"reverting"` + undoing + stuck, `"reverting"` + stuck}, command.ExitFailed, "is stuck in reverting"},
		"stuck in a stage":  {move + "cancel --wait", "migrating_data", "", []string{`"migrating_data"` + undoing, `"migrating_data"` + stuck + why(later)}, command.ExitFailed, "is stuck in migrating_data: not everything could be taken back: WHY: because"},
		"rotated":           {move + "rotate --wait", "ready", "", []string{`"ready","effects":{"rotate":{"id":"a"}}`, `"ready"`}, 0, "ready"},
		"not rotated":       {move + "rotate --wait", "ready", "", []string{`"ready","effects":{"rotate":{"id":"a"}}`, `"ready"` + why(later)}, command.ExitFailed, "stays ready: WHY: because"},
		"upgraded":          {upgrade, "upgrading", "", []string{`"upgrading"` + why(before), `"ready"` + why(before) + since}, 0, "ready"},
		"withdrawn":         {upgrade, "upgrading", "", []string{`"upgrading"`, `"withdrawing"` + why(later), `"ready"` + why(later) + since}, command.ExitFailed, "stays ready: WHY: because"},
		"wait undone":       {move + "wait", "", "", []string{`"failed"` + undoing, `"rolled_back"`}, 0, "rolled_back"},
		"wait for undone":   {move + "wait --for state=rolled_back", "", "failed", []string{`"failed"` + undoing, `"rolled_back"`}, 0, "rolled_back"},
		"wait not undone":   {move + "wait", "", "", []string{`"failed"` + undoing, `"failed"` + stuck}, command.ExitFailed, "ended failed"},
		"asks for approval": {move + "request --approval --wait", "requested", "", []string{`"requested","effects":{"plan":{"id":"a"}}`, `"requested"` + asks}, 0, "waits for approve: instar database_provisioning approve acme/move"},
		"wait for approval": {move + "wait", "", "", []string{`"requested"` + asks}, command.ExitTimeout, "waits for approve\ntry: instar database_provisioning approve acme/move"},
		"no approval":       {move + "wait --for state=ready --timeout 100ms", "", "", []string{`"requested"` + asks}, command.ExitTimeout, "still requested after 100ms; it waits for approve\ntry: instar database_provisioning approve acme/move"},
		"paused":            {move + "pause --wait", "migrating_data", "", []string{`"migrating_data","effects":{"halt":{"id":"a"}}` + paused, `"migrating_data"` + paused}, 0, "waits for resume"},
		"paused by another": {move + "retry --wait", "migrating_data", "", []string{`"migrating_data","effects":{"halt":{"id":"a"}}` + paused, `"migrating_data"` + paused}, command.ExitTimeout, "waits for resume"},
		"get":               {move + "get", "", "", []string{`"requested","allowedCommands":["approve","resume"],"forbiddenCommands":{"resume":"its phase is not paused"}` + asks}, 0, "Takes        approve\n"},
		"a dry run failed":  {move + "request --dry-run --wait", "requested", "", []string{`"requested","effects":{"plan":{"id":"a"}}`, `"cancelled"` + why(later)}, command.ExitFailed, "stays cancelled: WHY: because"},
		"wait stuck":        {move + "wait", "", "", []string{`"reverting"` + undoing, `"reverting"` + stuck}, command.ExitFailed, "is stuck in reverting"},
		"wait too short":    {move + "wait --timeout 200ms", "", "", []string{`"reverting"` + undoing}, command.ExitTimeout, "is still reverting after 200ms; the server goes on with it"},
		"wait in vain":      {move + "wait --for state=failed --timeout 200ms", "", "", []string{`"rolled_back"`}, command.ExitTimeout, "is rolled_back after 200ms, and does not leave that by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			entity := func(i int) string {
				return fmt.Sprintf(`{"machine":"m","namespace":"default","parent":"acme","id":"move","version":%[1]d,"revision":%[1]d,"since":%q,"state":%s}`, i+2, began, tc.changes[i])
			}
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodPost:
					answer(w, 200, fmt.Sprintf(`{"outcome":"applied","state":%q,"version":2,"revision":2,"generation":1,"commandId":"c1"}`, tc.state))
				case strings.HasSuffix(r.URL.Path, "/events"):
					answer(w, 200, fmt.Sprintf(`{"items":[{"seq":1,"version":1,"time":%q},{"seq":2,"version":2,"time":%q},{"seq":3,"version":3,"time":%q}],"nextCursor":""}`, before, began, later))
				case strings.HasSuffix(r.URL.Path, "/watch"):
					w.Header().Set("Content-Type", "text/event-stream")
					if tc.row != "" {
						fmt.Fprintf(w, "id: 2\nevent: snapshot\ndata: {\"machine\":\"m\",\"revision\":2,\"items\":[{\"id\":\"move\",\"state\":%q,\"version\":2,\"revision\":2}]}\n\n", tc.row)
					}
					for i := range tc.changes {
						fmt.Fprintf(w, "id: %d\nevent: entity\ndata: %s\n\n", i+2, entity(i))
					}
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				default:
					answer(w, 200, entity(0))
				}
			}))
			defer web.Close()
			code, out, said := exitOf1(strings.Fields(tc.args + " acme/move --server " + web.URL)...)
			require.Equal(t, tc.code, code, said)
			require.Contains(t, out+said, tc.said)
		})
	}
}

func TestATenantInUpperCaseIsNamed(t *testing.T) {
	t.Parallel()
	code, _, said := exitOf1("database_provisioning", "get", "OTHER/move")
	require.Equal(t, command.ExitUsage, code)
	require.Contains(t, said, `"OTHER" is no tenant: 1 to 63 of a-z, 0-9 and inner hyphens`)
}
