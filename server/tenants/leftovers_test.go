package tenants_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/databasetest"
)

// What a session that was abandoned leaves is listed until somebody has seen to it; nothing of one that goes on is.
func TestWhatAnAbandonedSessionLeavesIsListed(t *testing.T) {
	t.Parallel()
	w := setup(t, 5, "abandoned")
	w.Start()
	left := func() (list []string) {
		for _, v := range w.OK("GET", "/v1/tenant-leftovers", "")["items"].([]any) {
			item := v.(map[string]any)
			if name := fmt.Sprint(item["name"]); item["tenant"] == "abandoned" || strings.Contains(name, "abandoned") { // the server has databases of other tests
				list = append(list, fmt.Sprint(item["kind"], " ", item["session"]))
			}
		}
		return list
	}
	databasetest.Exec(t, w.source, databasetest.Refused)
	w.OK("POST", path("abandoned", "move")+"/request", `{}`)
	w.ends("abandoned", "move", "failed")
	require.Empty(t, left())
	w.OK("POST", path("abandoned", "move")+"/resolve", `{"outcome":"rolled_back"}`)
	w.ends("abandoned", "move", "rolled_back")
	require.Eventually(t, func() bool { return len(left()) == 2 }, waitFor, tick)
	require.ElementsMatch(t, []string{"fence default.abandoned.move", "database default.abandoned.move"}, left())

	w.Kill() // the sweep counts them, each hour and at the start
	w.Start()
	require.Eventually(t, func() bool {
		resp, err := http.Get(w.URL + "/metrics")
		require.NoError(t, err)
		defer resp.Body.Close()
		page, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return strings.Contains(string(page), `instar_tenant_leftovers{kind="fence"} 1`)
	}, waitFor, tick)
}
