package api_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A change is written once for all who watch it, whatever else they watch.
func TestAChangeIsWrittenOnceForAllWatchers(t *testing.T) {
	b := setup(t)
	b.ready("a")
	b.ready("b")
	paths := []string{"/v1/watch", "/v1/watch?machine=gadget", "/v1/watch?machine=gadget", "/v1/watch?machine=gadget&state=READY", "/v1/gadgets/a/watch", "/v1/watch?namespace=*"}
	var all []*sse
	for _, path := range paths {
		w := b.watch(path)
		w.named("snapshot")
		all = append(all, w)
	}
	all[0].idOnly() // behind its other snapshot
	before := b.server.EncodedChanges()
	for n := range 3 {
		rev := b.post("/v1/gadgets/a/resize", fmt.Sprintf(`{"size":%d}`, n)).json(t)["revision"]
		for _, w := range all {
			for _, got := w.named("entity"); got["revision"] != rev; _, got = w.named("entity") {
				require.Less(t, got["revision"], rev)
			}
		}
	}
	require.LessOrEqual(t, b.server.EncodedChanges()-before, uint64(9), "three changes, and what each of them brings about")
}

// Many watch while much changes: what each is told of one entity never goes back, and ends with what is true.
func TestWatchersOfManyChanges(t *testing.T) {
	b := setup(t)
	const gadgets, watchers, changes = 4, 6, 60
	for n := range gadgets {
		b.ready(fmt.Sprint("g", n))
	}
	var all []*sse
	last := make([]map[string]float64, watchers)
	for n := range watchers {
		all, last[n] = append(all, b.watch("/v1/watch?machine=gadget")), map[string]float64{}
	}
	for n := range changes {
		b.post(fmt.Sprintf("/v1/gadgets/g%d/resize", n%gadgets), fmt.Sprintf(`{"size":%d}`, n))
		if n == changes/2 {
			all, last = append(all, b.watch("/v1/watch?machine=gadget")), append(last, map[string]float64{}) // one that comes late
		}
	}
	truth := map[string]float64{}
	for _, item := range b.get("/v1/gadgets").json(t)["items"].([]any) {
		it := item.(map[string]any)
		truth[it["id"].(string)] = it["revision"].(float64)
	}
	for n, w := range all {
		for !holds(last[n], truth) {
			e := w.next()
			var got struct {
				ID       string
				Revision float64
				Items    []struct {
					ID       string
					Revision float64
				}
			}
			if e.name == "" {
				continue
			}
			require.NoError(t, json.Unmarshal([]byte(e.data), &got), e)
			switch e.name {
			case "snapshot":
				for _, it := range got.Items {
					last[n][it.ID] = it.Revision
				}
			case "entity":
				require.Greater(t, got.Revision, last[n][got.ID])
				last[n][got.ID] = got.Revision
			default:
				t.Fatal(e)
			}
		}
	}
}

func holds(has, truth map[string]float64) bool {
	for id, rev := range truth {
		if has[id] < rev {
			return false
		}
	}
	return true
}
