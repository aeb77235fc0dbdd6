package api_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/api/discovery"
)

// What watches are told leads from each list to the next one, whether they share what is written or not.
func TestDeltasLeadFromListToList(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lists := [][]discovery.Endpoint{nil}
		for n := range 4 {
			var list []discovery.Endpoint
			for i := range 6 {
				if rapid.Bool().Draw(t, "there") {
					list = append(list, discovery.Endpoint{InstanceID: fmt.Sprint("i", i), Weight: rapid.IntRange(1, 2).Draw(t, "weight"), Revision: uint64(rapid.IntRange(1, 2).Draw(t, "revision")), Payload: map[string]string{"n": fmt.Sprint(n)}})
				}
			}
			lists = append(lists, list)
		}
		var d api.Deltas
		for range 8 {
			from, to := rapid.SampledFrom(lists).Draw(t, "from"), rapid.SampledFrom(lists).Draw(t, "to")
			text := d.Between(from, to, true)
			require.Equal(t, d.Between(from, to, false), text)
			var change struct {
				Put    []discovery.Endpoint
				Remove []string
			}
			require.NoError(t, json.Unmarshal([]byte("{"+text+"}"), &change))
			got := slices.DeleteFunc(slices.Clone(from), func(e discovery.Endpoint) bool {
				return slices.Contains(change.Remove, e.InstanceID) || slices.ContainsFunc(change.Put, func(p discovery.Endpoint) bool { return p.InstanceID == e.InstanceID })
			})
			got = append(got, change.Put...)
			slices.SortFunc(got, func(a, b discovery.Endpoint) int { return strings.Compare(a.InstanceID, b.InstanceID) })
			require.Equal(t, brief(to), brief(got))
		}
	})
}

// brief is what tells two versions of an instance apart.
func brief(list []discovery.Endpoint) (all []string) {
	for _, e := range list {
		all = append(all, fmt.Sprint(e.InstanceID, e.Weight, e.Revision))
	}
	return all
}
