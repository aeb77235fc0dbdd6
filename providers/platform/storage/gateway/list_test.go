package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rclone/gofakes3"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The pages of a list have each object or folder once, in order, whatever is written and deleted while they are read: what is there before and after is in them.
func TestPages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var said []*jetstream.ObjectInfo
		there := map[string]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "said") {
			name := rapid.StringMatching(`[ab]{1,2}(/[ab]{1,2}){0,2}`).Draw(t, "name")
			gone := rapid.IntRange(0, 3).Draw(t, "gone") == 0
			info := &jetstream.ObjectInfo{NUID: fmt.Sprint(len(said)), Deleted: gone}
			info.Name = name
			said, there[name] = append(said, info), !gone
		}
		prefix := gofakes3.NewPrefix(nil, nil)
		if rapid.Bool().Draw(t, "delimited") {
			prefix.HasDelimiter, prefix.Delimiter = true, "/"
		}
		prefix.Prefix = rapid.SampledFrom([]string{"", "a", "a/", "ab", "a/b"}).Draw(t, "prefix")
		var want []string
		for name, is := range there {
			if folder, ok := within(name, &prefix); is && ok {
				if folder != "" {
					name = folder
				}
				want = append(want, name)
			}
		}
		slices.Sort(want)
		want = slices.Compact(want)
		var got []string
		of := gofakes3.ListBucketPage{MaxKeys: rapid.Int64Range(1, 7).Draw(t, "most")}
		for {
			p := newPage(&prefix, of)
			for _, info := range said {
				p.take(info)
				require.LessOrEqual(t, len(p.all), 4*(p.most+1))
			}
			list := p.list()
			if list.IsTruncated && list.NextMarker == "" { // it is read again, when each name has its last word
				last := map[string]*jetstream.ObjectInfo{}
				for _, info := range said {
					last[info.Name] = info
				}
				require.NotEqual(t, len(last), len(said))
				said = slices.Collect(maps.Values(last))
				continue
			}
			var names []string
			for _, c := range list.Contents {
				names = append(names, c.Key)
			}
			for _, c := range list.CommonPrefixes {
				names = append(names, c.Prefix)
			}
			slices.Sort(names)
			got = append(got, names...)
			if !list.IsTruncated {
				break
			}
			require.Greater(t, list.NextMarker, of.Marker)
			of.Marker, of.HasMarker = list.NextMarker, true
		}
		for _, name := range want {
			require.Contains(t, got, name)
		}
		for _, name := range got { // a folder may have had something when it was read
			require.True(t, slices.Contains(want, name) || strings.HasSuffix(name, "/"), name)
		}
		require.True(t, slices.IsSorted(got))
		require.Equal(t, got, slices.Compact(slices.Clone(got)))
	})
}

// Who moves a byte now and then is given up; who moves what the rate asks for has all the time.
func TestPace(t *testing.T) {
	t.Parallel()
	due := func(bytes int64, waited time.Duration) time.Duration {
		return time.Until((&pace{bytes, waited}).due()).Round(time.Second)
	}
	require.Equal(t, late, due(0, 0))
	require.Equal(t, time.Second, due(10, 29*time.Second))
	require.Equal(t, -10*time.Second, due(0, 40*time.Second))
	require.Equal(t, late, due(rate*3600, time.Hour))
	require.Equal(t, late, due(1<<45, 0))
}
