package audit_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/audit"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// records writes a chain, a record each minute.
func records(t *testing.T, n int, began time.Time) (lines [][]byte) {
	t.Helper()
	head := audit.Head{}
	for i := range n {
		var line []byte
		var err error
		line, head, err = head.Seal(audit.Record{Class: "state", EventType: "moved", Actor: audit.RecordActor{Type: audit.User, ID: "a<b>&c"}, Metadata: map[string]int{"n": i}}, began.Add(time.Duration(i)*time.Minute))
		require.NoError(t, err)
		lines = append(lines, line)
	}
	return lines
}

func check(lines [][]byte, last int) error {
	c := audit.Chain{Class: "state"}
	for _, line := range lines {
		if _, err := c.Next(line, now); err != nil {
			return err
		}
	}
	return c.End(uint64(last), now, now)
}

func TestAChainShowsWhatWasDoneToIt(t *testing.T) {
	t.Parallel()
	lines := records(t, 6, now.Add(-time.Hour))
	require.NoError(t, check(lines, 6))
	require.NoError(t, check(nil, 0))
	other := records(t, 6, now.Add(-2*time.Hour))
	for name, c := range map[string]struct {
		change func([][]byte) [][]byte
		at     uint64
		why    string
	}{
		"tampered":            {func(l [][]byte) [][]byte { l[2] = bytes.Replace(l[2], []byte(`"n":2`), []byte(`"n":7`), 1); return l }, 3, "it was changed"},
		"something added":     {func(l [][]byte) [][]byte { l[2] = bytes.Replace(l[2], []byte(`{`), []byte(`{"x":1,`), 1); return l }, 3, "it was changed"},
		"the last one":        {func(l [][]byte) [][]byte { l[5] = bytes.Replace(l[5], []byte(`user`), []byte(`system`), 1); return l }, 6, "it was changed"},
		"removed":             {func(l [][]byte) [][]byte { return slices.Delete(l, 2, 4) }, 3, "it is missing; the next one is 5"},
		"removed at the end":  {func(l [][]byte) [][]byte { return l[:4] }, 5, "it is missing, with all behind it up to 6"},
		"removed at the head": {func(l [][]byte) [][]byte { return l[2:] }, 2, "it was removed before its time"},
		"all removed":         {func([][]byte) [][]byte { return nil }, 1, "it is missing"},
		"reordered":           {func(l [][]byte) [][]byte { l[2], l[3] = l[3], l[2]; return l }, 3, "it is missing; the next one is 4"},
		"twice":               {func(l [][]byte) [][]byte { return slices.Insert(l, 3, l[2]) }, 3, "it comes after record 3"},
		"replaced":            {func(l [][]byte) [][]byte { l[3] = other[3]; return l }, 4, "follows another record"},
		"written anew":        {func(l [][]byte) [][]byte { copy(l[:3], other); return l }, 4, "follows another record"},
		"no JSON":             {func(l [][]byte) [][]byte { l[1] = []byte("x"); return l }, 2, "it cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := check(c.change(slices.Clone(lines)), 6)
			var b *audit.BreakError
			require.ErrorAs(t, err, &b)
			require.Equal(t, c.at, b.Sequence, b.Why)
			require.Contains(t, err.Error(), c.why)
		})
	}
}

// What is older than records become may be missing at the beginning, and nowhere else.
func TestAChainBeginsWhereItsRecordsHaveTheirAge(t *testing.T) {
	t.Parallel()
	old := records(t, 6, now.Add(-streams.LifeOf("state")-3*time.Hour))
	require.NoError(t, check(old[3:], 6))
	c := audit.Chain{Class: "state"}
	require.NoError(t, c.End(6, now.Add(-streams.LifeOf("state")), now), "all of them may be gone")
	require.ErrorContains(t, check(slices.Delete(slices.Clone(old), 1, 2), 6), "older than records of its class become; the next one is 3")
}

// An export lacks what had its age before it was exported, and nothing else: not what is missing behind a record that is younger, nor what a record hides that says it is older than the one before it.
func TestAnExportLacksOnlyWhatHadItsAge(t *testing.T) {
	t.Parallel()
	old := records(t, 4, now.Add(-streams.LifeOf("state")-time.Hour))
	forged, _, err := audit.Head{Sequence: 3, At: now.Add(-2 * streams.LifeOf("state"))}.Seal(audit.Record{Class: "state"}, now)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		lines  [][]byte
		now    time.Time
		missed uint64
	}{
		"Old":    {[][]byte{old[0], old[3]}, now, 2},
		"Young":  {[][]byte{old[0], old[3]}, now.Add(-3 * time.Hour), 0},
		"Forged": {[][]byte{old[0], forged}, now, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chain := audit.Chain{Class: "state"}
			_, err := chain.Skip(c.lines[0], c.now)
			require.NoError(t, err)
			missed, err := chain.Skip(c.lines[1], c.now)
			require.Equal(t, c.missed, missed)
			require.Equal(t, c.missed > 0, err == nil, "%v", err)
		})
	}
}

// A clock that was put back, or the slower one of a node that has taken over, makes no record older than the one before it.
func TestNoRecordIsOlderThanTheOneBeforeIt(t *testing.T) {
	t.Parallel()
	_, head, err := audit.Head{}.Seal(audit.Record{Class: "state"}, now)
	require.NoError(t, err)
	line, next, err := head.Seal(audit.Record{Class: "state"}, now.Add(-time.Hour))
	require.NoError(t, err)
	r, err := audit.Parse(line)
	require.NoError(t, err)
	require.Equal(t, now, r.RecordedAt)
	require.Equal(t, now, next.At)
}

// Who writes when all that was before has gone by its age does not know its hash. A file may still have it.
func TestAChainGoesOnBehindWhatHasGone(t *testing.T) {
	t.Parallel()
	life := streams.LifeOf("state")
	for lapse, fails := range map[time.Duration]string{life: "", life - 2*time.Hour: "record 7: it follows another record"} {
		began := now.Add(-lapse - 6*time.Minute)
		lines := records(t, 6, began)
		head, _, err := audit.HeadOf(lines[5])
		require.NoError(t, err)
		head.Hash = ""
		line, _, err := head.Seal(audit.Record{Class: "state"}, head.At.Add(lapse))
		require.NoError(t, err)
		err = check(append(lines, line), 7)
		if fails == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, fails)
	}
}

// The hash can be checked without a program that writes JSON as this one does.
func TestAHashIsThatOfTheLineWithoutIt(t *testing.T) {
	t.Parallel()
	line := records(t, 1, now)[0]
	r, err := audit.Parse(line)
	require.NoError(t, err)
	require.True(t, bytes.HasSuffix(line, fmt.Appendf(nil, `,"hash":"%s"}`, r.Hash)))
}

// How long records are kept comes with the stream. What had gone before that was made longer was not removed; what is younger was.
func TestAChainIsCheckedByTheLifeThatItsStreamHas(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	config := audit.Stream(streams.Names{}, "state", 1)
	require.Equal(t, audit.Life{Kept: int64(streams.LifeOf("state") / time.Second)}, audit.LifeOf(config))
	_, changed := audit.Extend(config, streams.LifeOf("state"), now)
	require.False(t, changed)
	short, changed := audit.Extend(config, 10*day, now.Add(-30*day))
	require.True(t, changed)
	require.Equal(t, 10*day, short.MaxAge)
	long, _ := audit.Extend(short, 100*day, now.Add(-2*day))
	ahead, _ := audit.Extend(short, 100*day, now.Add(2*day))
	config.MaxAge = 0
	forever, _ := audit.Extend(config, 10*day, now)
	require.Empty(t, forever.Metadata, "nothing had gone")
	config.MaxAge = streams.LifeOf("state")
	require.Empty(t, short.Metadata)
	require.Equal(t, audit.Life{Kept: 100 * 24 * 3600, Before: []audit.KeptBefore{{Kept: 10 * 24 * 3600, Until: now.Add(-2 * day)}}}, audit.LifeOf(long))
	for _, c := range []struct {
		name   string
		config jetstream.StreamConfig
		age    time.Duration // of the first record that is left
		why    string
	}{
		{"it has its age", short, 11 * day, ""},
		{"it has not", short, 9 * day, "removed before its time"},
		{"by default it has not", config, 11 * day, "removed before its time"},
		{"it had gone before they were kept longer", long, 13 * day, ""},
		{"it was kept longer by then", long, 11 * day, "removed before its time"},
		{"it has the longer age", long, 101 * day, ""},
		{"it had its age until a time that has not come", ahead, 11 * day, ""},
		{"it has its age by a time that has not come", ahead, 9 * day, "removed before its time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			lines := records(t, 4, now.Add(-c.age))
			chain := audit.Chain{Class: "state", Life: audit.LifeOf(c.config)}
			_, err := chain.Next(lines[2], now)
			if c.why == "" {
				require.NoError(t, err)
				require.NoError(t, (&audit.Chain{Class: "state", Life: chain.Life}).End(4, now.Add(-c.age), now), "all of them may be gone")
				return
			}
			require.ErrorContains(t, err, c.why)
			require.ErrorContains(t, (&audit.Chain{Class: "state", Life: chain.Life}).End(4, now.Add(-c.age), now), "it is missing")
		})
	}
}
