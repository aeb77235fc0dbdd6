package api_test

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An id of a watch of all machines names each of them, with what was sent of it last.
func TestAWatchOfManyMachinesGoesOn(t *testing.T) {
	b := setup(t)
	b.ready("a")
	id := b.watch("/v1/watch").idOnly()
	gadget := id[strings.Index(id, "gadget:"):]
	gadget, _, _ = strings.Cut(gadget, ",")
	var others []string // as of a program that has 30 more
	for i := range 30 {
		others = append(others, strings.Replace(gadget, "gadget", fmt.Sprintf("another-machine-with-a-long-name-%02d", i), 1)+strings.Repeat("-zzzzzz.zzzzzz.zzzzzzz", 4))
	}
	w := b.watch("/v1/watch?after=" + url.QueryEscape(strings.Join(append(others, id), ",")))
	require.Equal(t, 200, w.res.StatusCode)
	require.Equal(t, "snapshot", w.next().name, "and no reset")
}

// A store that was restored, or has lost its end, and was written since, stands where a client has seen it stand, with other
// instances. Two stores are two such histories.
func TestAnIndexOfALostHistory(t *testing.T) {
	lost := discovering(t)
	lost.healthy("web", "a", "")
	lost.healthy("db", "x", "")
	t.Run("Now", func(t *testing.T) {
		now := discovering(t)
		now.healthy("web", "b", "")
		for i := range 3 {
			now.healthy("db", fmt.Sprint("x", i), "")
		}
		t.Run("Watch", func(t *testing.T) { lostWatch(t, lost, now) })
		t.Run("BlockingRead", func(t *testing.T) { lostRead(t, lost, now) })
		t.Run("EveryWatch", func(t *testing.T) { lostItems(t, lost, now) })
	})
}

func lostWatch(t *testing.T, lost, now *catalogued) {
	e, _ := lost.watch("/v1/discover/web/watch").named("snapshot")
	_, snap := now.watch("/v1/discover/web/watch", "Last-Event-ID", e.id).named("snapshot")
	require.Equal(t, []string{"b"}, listed(snap["instances"]))
	require.Equal(t, e.id, lost.watch("/v1/discover/web/watch", "Last-Event-ID", e.id).idOnly(), "nothing else is said")
}

func lostRead(t *testing.T, lost, now *catalogued) {
	had := lost.get("/v1/discover/web")
	tag, index := had.Header.Get("Etag"), had.Header.Get("X-Instar-Index")
	require.NotEmpty(t, tag)
	begun := time.Now()
	r := now.get("/v1/discover/web?wait=1m&index="+index, "If-None-Match", tag)
	require.Less(t, time.Since(begun), soon)
	require.Equal(t, []string{"b"}, found(t, r))
	r = now.get("/v1/discover/web?wait=200ms&index="+index, "If-None-Match", r.Header.Get("Etag"))
	require.Equal(t, 304, r.StatusCode)
	require.NotEmpty(t, r.Header.Get("X-Instar-Index"))
	r = now.get("/v1/discover/web?zone=mars&wait=1m&index="+index, "If-None-Match", tag)
	require.Empty(t, found(t, r), "of what a filter leaves, too")
	require.Equal(t, 200, now.get("/v1/discover/web?choose=1", "If-None-Match", tag).StatusCode)
}

func lostItems(t *testing.T, lost, now *catalogued) {
	w := lost.watch("/v1/watch?machine=instance")
	w.idOnly()
	lost.healthy("db", "y", "")
	id := w.idOnly()
	other := now.watch("/v1/watch?machine=instance", "Last-Event-ID", id)
	_, reset := other.named("reset")
	require.NotEmpty(t, reset["reason"])
	_, snap := other.named("snapshot")
	require.Len(t, snap["items"], 4)
	_, snap = lost.watch("/v1/watch?machine=instance", "Last-Event-ID", id).named("snapshot")
	require.Empty(t, snap["items"], "it has them all")
	lost.healthy("web", "c", "")
	_, snap = lost.watch("/v1/watch?machine=instance", "Last-Event-ID", id).named("snapshot")
	require.Len(t, snap["items"], 1)
}

// Where all that a client was told of last was written again, nothing proves that it had the rest: it begins anew.
func TestAWatchBeginsAnewWhereNothingIsAsItWas(t *testing.T) {
	r := discovering(t)
	w := r.watch("/v1/watch?machine=instance")
	w.idOnly()
	for i := range 7 {
		r.healthy("web", fmt.Sprint("i", i), "")
	}
	id := w.idOnly()
	for i := 2; i < 7; i++ {
		_, snap := r.watch("/v1/watch?machine=instance", "Last-Event-ID", id).named("snapshot")
		require.Len(t, snap["items"], i-2)
		r.pin(fmt.Sprint("i", i), 7)
	}
	again := r.watch("/v1/watch?machine=instance", "Last-Event-ID", id)
	again.named("reset")
	_, snap := again.named("snapshot")
	require.Len(t, snap["items"], 7)
	one := r.watch("/v1/services/web/instances/i2/watch")
	e, _ := one.named("snapshot")
	r.pin("i2", 8)
	require.Equal(t, "snapshot", r.watch("/v1/services/web/instances/i2/watch", "Last-Event-ID", e.id).next().name, "one is sent whole in any case")
	for _, bad := range []string{"x", "4-x", "4-a.b.c-", "4-1.1", "4-1.1.1-1.1.1-1.1.1-1.1.1-1.1.1-1.1.1"} {
		r.get("/v1/watch?machine=instance", "Last-Event-ID", bad).problem(t, 422, "validation")
	}
}

// A store that lost its end shares what was before it with what a client was told. What it was told of the end is
// either sent as it is now, or the client begins anew.
func TestAWatchOfWhatHasLostItsEnd(t *testing.T) {
	r := discovering(t)
	every := "/v1/watch?machine=instance"
	r.healthy("web", "old", "")
	e, _ := r.watch(every).named("snapshot")
	require.Empty(t, e.id, "there may be more")
	old := r.watch("/v1/watch?machine=instance&parent=web&id=old").next()
	_, proof, _ := strings.Cut(old.id, "-")
	key := proof[strings.LastIndex(proof, ".")+1:] // of old
	for i := range 4 {
		r.healthy("web", fmt.Sprint("i", i), "")
	}
	w := r.watch(every)
	w.named("snapshot")
	last := r.healthy("web", "i4", "")
	id := w.idOnly()
	for !strings.HasPrefix(id, fmt.Sprint(last, "-")) {
		id = w.idOnly()
	}
	_, proof, _ = strings.Cut(id, "-")
	names := strings.Split(proof, "-")
	require.Len(t, names, 5)
	told := func(at uint64, what ...string) string { // at first, in the history that was lost
		for i := range what {
			what[i] = strconv.FormatUint(at-uint64(i), 36) + "." + what[i]
		}
		return fmt.Sprint(at, "-", strings.Join(append(what, names[:5-len(what)]...), "-"))
	}
	begins := func(path, id string) event { return r.watch(path, "Last-Event-ID", id).next() }
	r.healthy("db", "x", "") // in this one, which is further than the client by now
	for what, lost := range map[string]string{
		"changed": "zzz." + key, "new": "zzz.ghost", "deleted": "0." + key,
	} {
		require.Equal(t, "reset", begins(every, told(last+1, lost)).name, what)
	}
	require.Equal(t, "reset", begins(every, told(last+4, "zzz.a", "zzz.b", "zzz.c", "zzz.d")).name)
	require.Equal(t, "reset", begins(every, fmt.Sprint(last, "-", strconv.FormatUint(last, 36), ".0.nobody")).name, "it may have others")
	require.Equal(t, "reset", begins(every, "0-4.zzz.ghost").name, "told of before its first mark")
	require.Equal(t, "reset", begins("/v1/watch?machine=instance&parent=web&id=gone", "4-4.zzz.abc").name)
	require.Equal(t, "reset", begins("/v1/watch?machine=instance&parent=web&id=gone", "4").name)

	// What is as it was, or is sent, is no reason.
	r.pin("old", 7)
	for _, what := range []string{"zzz." + key, "0." + key, "0.nobody"} {
		w := r.watch(every, "Last-Event-ID", told(last+1, what))
		_, snap := w.named("snapshot")
		require.Len(t, snap["items"], 2, what)
	}

	// A node that is behind the one that told does not take it back: an item is never told at an older revision, unless all is begun anew. The mark
	// of a watch of many lies before what was told last.
	further := fmt.Sprint(last, "-", strings.Join(append([]string{strconv.FormatUint(last+1000, 36) + ".zzz." + key}, names[:4]...), "-"))
	require.Equal(t, "reset", begins(every, further).name)
}

// A deletion that was told stays named over reconnects: nothing else in the store tells of it.
func TestAWatchNamesWhatWasDeleted(t *testing.T) {
	r := discovering(t)
	r.healthy("web", "a", "")
	r.healthy("web", "b", "")
	w := r.watch("/v1/watch?machine=instance")
	w.named("snapshot")
	bucket, err := r.js.KeyValue(t.Context(), "instances")
	require.NoError(t, err)
	require.NoError(t, bucket.Purge(t.Context(), "default.web.b"))
	e, _ := w.named("deleted")
	names := strings.Split(e.id, "-")[1:]
	require.Len(t, names, 2, "a, too")
	require.Equal(t, "0", strings.Split(names[0], ".")[1])
	again := r.watch("/v1/watch?machine=instance", "Last-Event-ID", e.id)
	require.Equal(t, "snapshot", again.next().name)
	r.healthy("web", "c", "")
	e, _ = again.named("entity")
	require.Contains(t, strings.Split(e.id, "-"), names[0])
}

// Nobody knows who left the states that are watched while the client was away.
func TestAWatchOfStatesBeginsAnew(t *testing.T) {
	r := discovering(t)
	r.healthy("web", "a", "")
	rev := r.healthy("web", "b", "")
	again := r.watch(fmt.Sprint("/v1/watch?machine=instance&state=active.healthy&after=", rev))
	again.named("reset")
	_, snap := again.named("snapshot")
	require.Len(t, snap["items"], 2)
}

// A reset is of all machines that are watched: the client forgets what it had of the others, too. Where nothing changes,
// the id behind a snapshot is all that it has to go on with.
func TestAResetOfSeveralMachines(t *testing.T) {
	r := discovering(t)
	r.ready("g")
	r.healthy("web", "a", "")
	rev := r.healthy("web", "b", "")
	require.Equal(t, []string{"a", "b"}, found(t, r.get(fmt.Sprint("/v1/discover/web?minRevision=", rev))))
	begins := func(path string, meanwhile func()) {
		id := r.watch(path).idOnly()
		require.Contains(t, id, "gadget:")
		meanwhile()
		again, items := r.watch(path, "Last-Event-ID", id), 0
		require.Equal(t, "reset", again.next().name)
		for e := again.next(); e.name != ""; e = again.next() {
			require.Equal(t, "snapshot", e.name, "once, and nothing but what there is")
			items += strings.Count(e.data, `"id":`)
		}
		require.Equal(t, len(r.get("/v1/gadgets").json(t)["items"].([]any))+len(found(t, r.get("/v1/discover/web"))), items)
	}
	begins("/v1/watch?state=READY,active.healthy", func() {})
	begins("/v1/watch", func() {
		live := r.watch("/v1/watch?machine=instance")
		live.idOnly()
		bucket, err := r.js.KeyValue(t.Context(), "instances")
		require.NoError(t, err)
		require.NoError(t, bucket.Purge(t.Context(), "default.web.b"))
		live.named("deleted")
	})
}
