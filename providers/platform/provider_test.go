//go:build linux

package platform_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/platform"
	apps "github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// A tenant gets everything, another version, and goes without a trace; each task is performed twice.
func TestTheWayToAnInstanceToAnotherVersionAndBack(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	b.Platform.CustomDomain = "shop.acme.test"
	plan := twice[machine.Plan](w, "plan", 1, b)
	require.Equal(t, "1.0", plan.Version)
	require.Equal(t, "example.test", plan.Domain)
	require.Equal(t, []string{
		"allocating_instance", "allocating_db", "allocating_storage", "deploying_app", "running_migrations", "migrating_data", "configuring_domain", "issuing_cert", "verifying",
	}, plan.Steps)

	instance := twice[machine.Instance](w, "provision", 2, b)
	require.Equal(t, machine.Instance{ID: "process/tenant-acme", Host: "127.0.0.1"}, instance)
	b.Instance = &instance
	db := twice[database.Allocated](w, "allocate", 3, b)
	b.Database = &db
	bucket := twice[machine.Storage](w, "store", 4, b)
	require.Equal(t, machine.Storage{ID: "jetstream/tenant-acme", Bucket: "tenant-acme"}, bucket)
	b.Storage = &bucket
	app := twice[machine.App](w, "deploy", 5, b)
	b.App = &app
	require.Equal(t, machine.Route{ID: "acme.example.test", Domain: "default.acme.shop-acme-test"}, twice[machine.Route](w, "route", 6, b))
	require.Equal(t, "test", twice[machine.Certificate](w, "certify", 7, b).Issuer)
	proven := twice[machine.Proven](w, "probe", 8, b)
	require.Equal(t, 200, proven.Status)
	require.Equal(t, "1.0 acme tenant_acme tenant-acme acme.example.test", w.says())

	b.Upgrade, b.Release = &machine.Upgrade{From: "1.0", To: "1.1", Release: 2, Weight: 50}, &machine.App{Name: "tenant-acme-r2", Version: "1.1"}
	require.Equal(t, "1.1", twice[machine.Plan](w, "plan", 9, b).Version)
	next := twice[machine.App](w, "deploy", 10, b)
	b.Upgrade.App = &next
	require.Equal(t, machine.Shifted{Weight: 50, HealthOnly: true}, twice[machine.Shifted](w, "shift", 11, b))
	seen := map[string]bool{}
	for range 4 {
		seen[w.says()[:3]] = true
	}
	require.Equal(t, map[string]bool{"1.0": true, "1.1": true}, seen, "both have their share")
	w.bindings.lead("shop.acme.test", next.Address)
	f := w.perform("own", "withdraw", 11, b).Failure
	require.True(t, f.Retryable)
	require.Equal(t, "shop.acme.test still leads to the release tenant-acme-r2, as its domain has not followed: see what that says, mend, retarget or remove it, and roll back again", f.Message)
	w.bindings.lead("shop.acme.test", app.Address)
	f = w.perform("own", "retire", 12, b).Failure
	require.True(t, f.Retryable)
	require.Equal(t, "shop.acme.test still leads to the release tenant-acme-r1, as its domain has not followed: see what that says, mend, retarget or remove it, and prune", f.Message)
	w.bindings.lead("shop.acme.test", next.Address)
	twice[any](w, "retire", 12, b)
	require.Equal(t, "1.1", w.says()[:3])
	require.Equal(t, next.Address, w.bindings.all["shop.acme.test"].Targets[0].Address, "the custom domain follows")

	left := apps.Release{Namespace: "default", Tenant: "tenant-acme", Name: "tenant-acme-r3", Version: "1.0", Owner: "instance_provisioning/default.acme.own", Fence: 12, Attempt: "x"}
	_, err := w.Apps.Deploy(t.Context(), left)
	require.NoError(t, err)
	b.App, b.Ledger = &next, ledger("tenant-acme-r2", "tenant-acme-r3")
	twice[any](w, "retire", 13, b)
	_, err = w.Apps.Look(t.Context(), "default", "tenant-acme-r3")
	require.True(t, providers.IsNotFound(err), "an earlier upgrade had left it: %v", err)

	w.bindings.leads = nil
	b.App, b.Upgrade, b.Release = &next, nil, nil
	b.Actions = machine.Undo(ledger("tenant-acme-r1", "tenant-acme-r2"))
	for _, r := range twice[session.Results](w, "undo", 14, b).Actions {
		require.True(t, r.Done, "%+v", r)
	}
	w.nothing()
	require.Equal(t, []string{"restore_tenant_runtime+invalidate_cache+lift_fence", "delete_database"}, w.workers.asked[len(w.workers.asked)-2:])
}

func TestAnUpgradeIsWithdrawn(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	app := twice[machine.App](w, "deploy", 1, b)
	b.App = &app
	twice[machine.Route](w, "route", 2, b)
	b.Upgrade, b.Release = &machine.Upgrade{From: "1.0", To: "sick", Release: 2, Weight: 5}, &machine.App{Name: "tenant-acme-r2", Version: "sick"}
	f := w.perform("own", "deploy", 3, b).Failure
	require.Equal(t, "DEPLOYMENT_UNHEALTHY", f.Code)
	require.True(t, f.Retryable)
	require.Contains(t, f.Message, "it has a mistake")
	require.Contains(t, string(f.Details), `"it has a mistake"`)

	b.Upgrade.App = &machine.App{Name: "tenant-acme-r2", Address: "127.0.0.1:1"} // where nobody listens
	f = w.perform("own", "shift", 4, b).Failure
	require.Equal(t, "UPGRADE_UNHEALTHY", f.Code)
	require.False(t, f.Retryable)
	twice[any](w, "withdraw", 5, b)
	require.Equal(t, "1.0", w.says()[:3])
	require.Len(t, w.rows.all["acme.example.test"].Route.Targets, 1)
	kept, err := filepath.Glob(filepath.Join(w.dir, "logs", "default.tenant-acme", "*.log"))
	require.NoError(t, err)
	require.Len(t, kept, 1, "what it has said stays when it is gone")
	said, err := os.ReadFile(kept[0])
	require.NoError(t, err)
	require.Contains(t, string(said), "it has a mistake")

	b.Upgrade.Hold, b.Platform.CustomDomain = 60, "shop.acme.test"
	b.Upgrade.App = b.App // which is healthy, and fails what it is asked under the custom domain
	asked := int64(0)
	w.Traffic = func(host, _ string) (n platform.Traffic) {
		if host == "shop.acme.test" {
			asked += 10
			n = platform.Traffic{Requests: asked, Errors: asked / 10}
		}
		return n
	}
	f = w.perform("own", "shift", 6, b).Failure
	require.Equal(t, "UPGRADE_UNHEALTHY", f.Code)
	require.Regexp(t, `failed \d+ of \d+ requests`, f.Message)

	_, port, err := net.SplitHostPort(app.Address)
	require.NoError(t, err)
	b.Upgrade.App = &machine.App{Name: "tenant-acme-r2", Address: "localhost:" + port} // which is healthy, and hangs
	var before platform.Traffic
	w.Traffic = func(host, address string) platform.Traffic {
		switch {
		case host == "shop.acme.test":
			return platform.Traffic{}
		case address == app.Address:
			return before
		}
		asked += 50
		return platform.Traffic{Requests: asked, Hung: asked}
	}
	for _, before = range []platform.Traffic{{Requests: 100, Hung: 10}, {}} {
		f = w.perform("own", "shift", 6, b).Failure
		require.NotNil(t, f)
		require.Equal(t, "UPGRADE_UNHEALTHY", f.Code)
		require.Regexp(t, `left \d+ of \d+ requests without an answer for too long, and its predecessor does not`, f.Message)
	}
	before = platform.Traffic{Requests: 100, Hung: 97} // as of an application that holds requests back
	b.Upgrade.Hold = 0
	require.Nil(t, w.perform("own", "shift", 6, b).Failure)

	polled := map[string]platform.Traffic{app.Address: {Requests: 100_000}} // which had no such requests until a client asks for many
	w.Traffic = func(host, address string) platform.Traffic {
		if host == "shop.acme.test" {
			return platform.Traffic{}
		}
		n := polled[address]
		n.Requests, n.Hung = n.Requests+50, n.Hung+40
		polled[address] = n
		return n
	}
	result := w.perform("own", "shift", 6, b)
	require.Nil(t, result.Failure, "what asks for an answer that is held back asks both")
	require.Equal(t, machine.Shifted{Weight: b.Upgrade.Weight, Requests: 50}, result.Data, "there were enough to judge by")

	b.Release = b.App
	f = w.perform("own", "withdraw", 6, b).Failure
	require.NotNil(t, f, "the one that serves is never removed")
	require.Equal(t, "1.0", w.says()[:3])
	f = w.perform("own", "shift", 4, b).Failure
	require.Equal(t, uint64(6), f.Fence, "an older task changes no route")
}

// A session that was restored from a backup may be older than its switch, and than its upgrades.
func TestASessionOlderThanRealityLeadsNoTraffic(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	b.Release = &machine.App{Name: "tenant-acme-r2", Version: "1.1"}
	serves := twice[machine.App](w, "deploy", 1, b)
	b.App = &serves
	twice[machine.Route](w, "route", 2, b)
	w.workers.there = true
	old := task("default.acme.own")
	old.App = &machine.App{Name: "tenant-acme-r1", Version: "1.0", Address: "127.0.0.1:1"}
	for _, effect := range []string{"deploy", "route"} {
		f := w.perform("own", effect, 3, old).Failure
		require.NotNil(t, f, effect)
		require.Contains(t, f.Message, "resolve as ready", effect)
		require.False(t, f.Retryable, effect)
	}
	_, err := w.Apps.Look(t.Context(), "default", "tenant-acme-r1")
	require.True(t, providers.IsNotFound(err), "%v", err)
	require.Equal(t, "1.1", w.says()[:3])
}

// Of many sessions that want a slug one gets it, and the undo of the others leaves that one alone.
func TestOneOfManyGetsASlug(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var all sync.WaitGroup
	results := make([]machines.Result, 100)
	for i := range results {
		all.Go(func() { results[i] = w.perform(fmt.Sprint("s", i), "provision", 1, task(fmt.Sprint("s", i))) })
	}
	all.Wait()
	winner := -1
	for i, r := range results {
		if r.Failure == nil {
			require.Equal(t, -1, winner, "there is one")
			winner = i
			continue
		}
		require.Equal(t, machine.CodeSlug, r.Failure.Code)
		require.False(t, r.Failure.Retryable)
	}
	require.NotEqual(t, -1, winner)
	own := fmt.Sprint("s", winner)
	require.Nil(t, w.perform(own, "store", 2, task(own)).Failure)
	for i := range results {
		if i == winner {
			continue
		}
		b := task("other")
		b.Actions = machine.Undo(ledger("tenant-acme-r1"))
		r := w.perform(fmt.Sprint("s", i), "undo", 2, b)
		require.Nil(t, r.Failure)
	}
	require.Equal(t, "instance_provisioning/default.acme."+own, w.rows.all["acme.example.test"].Owner)
	require.DirExists(t, w.dir+"/tenants/default.tenant-acme")
	_, err := w.env.JS.ObjectStore(t.Context(), "tenant-acme")
	require.NoError(t, err)
}

// slow is a store whose answer comes after an undo that has found nothing.
type slow struct {
	storage.Provider
	before func()
}

func (s *slow) Ensure(ctx context.Context, spec storage.Spec) (storage.Bucket, error) {
	s.before()
	return s.Provider.Ensure(ctx, spec)
}

func TestWhatWasOvertakenByAnUndoIsTakenBack(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	require.Nil(t, w.perform("own", "provision", 1, b).Failure)
	undo := b
	undo.Actions = machine.Undo(ledger("tenant-acme-r1"))
	w.Storage = &slow{Provider: w.Storage, before: func() {
		require.Nil(t, w.perform("own", "undo", 5, undo).Failure)
	}}
	f := w.perform("own", "store", 2, b).Failure
	require.Equal(t, uint64(5), f.Fence)
	w.nothing()
	for _, effect := range []string{"provision", "store", "deploy", "route", "certify"} {
		b.App = &machine.App{Name: "tenant-acme-r1", Address: "127.0.0.1:1"}
		require.Equal(t, uint64(5), w.perform("own", effect, 4, b).Failure.Fence, effect)
	}
	w.nothing()
}

func TestAnUndoGoesOnAfterAFailureAndStopsWhereItSaysSo(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	require.Nil(t, w.perform("own", "provision", 1, b).Failure)
	b.Actions = machine.Undo(ledger())
	w.workers.fails = "delete_database"
	r := w.perform("own", "undo", 2, b).Data.(session.Results)
	for _, a := range r.Actions {
		require.Equal(t, a.Action != "delete_database", a.Done, "%+v", a)
	}
	b.Actions = append([]session.Action{{Name: "lift_fence", Kind: database.KindFence}, {Name: "remove_route", Kind: machine.KindRoute}}, b.Actions[len(b.Actions)-3:]...)
	w.workers.fails = "lift_fence"
	r = w.perform("own", "undo", 2, b).Data.(session.Results)
	require.Equal(t, []string{"lift_fence", "lift_fence+delete_database"}, w.workers.asked[len(w.workers.asked)-2:], "they do not give the tenant free while its fence stands")
	require.False(t, r.Actions[0].Done)
	require.True(t, r.Actions[2].Done, "%+v", r.Actions)
	b.Actions = machine.Undo(ledger())
	w.workers.fails = "restore_tenant_runtime"
	r = w.perform("own", "undo", 3, b).Data.(session.Results)
	require.False(t, r.Actions[0].Done)
	for _, a := range r.Actions[3:] { // the first three are one request
		require.Contains(t, a.Error, "not tried", "%+v", a)
	}
	b.Actions = []session.Action{{Name: "export_data", Kind: database.KindDatabase, Stop: true}, {Name: "release_slug", Kind: machine.KindSlug}}
	r = w.perform("own", "undo", 4, b).Data.(session.Results)
	require.Contains(t, r.Actions[0].Error, "nowhere to export to")
	require.False(t, r.Actions[1].Done)
}

// What passes is waited for by the tries that an undo has, so that its last one may go on without it. A tenant that is kept out of its database is no end of any of them.
func TestAnUndoIsTriedAgainBeforeSomethingIsLeft(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	require.Nil(t, w.perform("own", "provision", 1, b).Failure)
	b.Actions = machine.Undo(ledger())
	w.workers.ends = &machines.Failure{Code: "UNDO_FAILED", Message: "the server does not answer", Retryable: true}
	for try := 1; try < 3; try++ {
		f := w.try("own", "undo", 2, try, b).Failure
		require.NotNil(t, f, "try %d", try)
		require.True(t, f.Retryable)
		require.Equal(t, "the server does not answer", f.Message)
	}
	r := w.try("own", "undo", 2, 3, b).Data.(session.Results)
	require.Equal(t, "the server does not answer", r.Actions[0].Error)

	w.workers.ends = &machines.Failure{Code: database.CodeShut, Message: "the tenant is kept out"}
	require.Equal(t, database.CodeShut, w.try("own", "undo", 3, 3, b).Failure.Code)

	w.workers.ends = nil
	bucket := w.Storage
	w.Storage = &away{bucket}
	require.True(t, w.try("own", "undo", 4, 1, b).Failure.Retryable, "the same of what is not in databases")
	w.Storage = bucket
	for _, r := range w.try("own", "undo", 4, 2, b).Data.(session.Results).Actions {
		require.True(t, r.Done, "%+v", r)
	}
	w.nothing()
}

// ending are applications of which it is told when one is removed.
type ending struct {
	apps.Provider
	before func()
}

func (e *ending) Remove(ctx context.Context, r apps.Release) error {
	e.before()
	return e.Provider.Remove(ctx, r)
}

func TestAReleaseEndsWhenTheProxiesHaveFollowed(t *testing.T) {
	t.Parallel()
	end := session.Action{Name: "delete_app:tenant-acme-r1", Kind: machine.KindApp}
	for what, actions := range map[string][]session.Action{
		"as it comes": {{Name: "remove_route", Kind: machine.KindRoute}, end}, "without remove_route, which was to be skipped": {end},
	} {
		w, b := setup(t), task("default.acme.own")
		app := twice[machine.App](w, "deploy", 1, b)
		b.App = &app
		twice[machine.Route](w, "route", 2, b)
		w.Settle = 300 * time.Millisecond
		begun, ends := time.Now(), 0
		w.Apps = &ending{w.Apps, func() {
			ends++
			row, err := w.rows.Row(t.Context(), "acme.example.test")
			require.NoError(t, err)
			require.Nil(t, row.Route, what)
			require.GreaterOrEqual(t, time.Since(begun), w.Settle)
		}}
		b.Actions = actions
		require.Nil(t, w.perform("own", "undo", 3, b).Failure, what)
		require.Equal(t, 1, ends, what)
	}
}

// Whoever gets the slug next must not meet what the last one has left.
func TestASlugIsKeptWhileSomethingIsNamedByIt(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	require.Nil(t, w.perform("own", "provision", 1, b).Failure)
	bucket := w.Storage
	w.Storage = &away{bucket}
	b.Actions = machine.Undo(ledger())
	r := w.perform("own", "undo", 2, b).Data.(session.Results)
	last := r.Actions[len(r.Actions)-1]
	require.False(t, last.Done)
	require.Contains(t, last.Error, "delete_storage")
	require.Equal(t, "instance_provisioning/default.acme.own", w.rows.all["acme.example.test"].Owner)
	w.Storage = bucket
	for _, r := range w.perform("own", "undo", 3, b).Data.(session.Results).Actions {
		require.True(t, r.Done, "%+v", r)
	}
	w.nothing()
}

// A bucket of which somebody has taken the mark is left, and told. What was in the way of one that was never made is nobody's here.
func TestABucketThatHasLostItsMarkIsNotSaidToBeGone(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	require.Nil(t, w.perform("own", "provision", 1, b).Failure)
	require.Nil(t, w.perform("own", "store", 2, b).Failure)
	stream, err := w.env.JS.Stream(t.Context(), "OBJ_tenant-acme")
	require.NoError(t, err)
	c := stream.CachedInfo().Config
	delete(c.Metadata, "instar-owner")
	_, err = w.env.JS.UpdateStream(t.Context(), c)
	require.NoError(t, err)
	b.Ledger = []session.Entry{{Kind: machine.KindStorage, Name: "tenant-acme", State: session.Created}}
	b.Actions = machine.Undo(ledger())
	left := map[string]string{}
	for _, r := range w.perform("own", "undo", 3, b).Data.(session.Results).Actions {
		if !r.Done {
			left[r.Action] = r.Error
		}
	}
	require.Len(t, left, 2, "%v", left)
	require.Contains(t, left["delete_storage"], "remove it by hand")
	require.Contains(t, left["release_slug"], "delete_storage")
	b.Ledger[0].State = session.Intended
	for _, r := range w.perform("own", "undo", 4, b).Data.(session.Results).Actions {
		require.True(t, r.Done, "%+v", r)
	}
	_, err = w.env.JS.ObjectStore(t.Context(), "tenant-acme")
	require.NoError(t, err)
}

// away is a store that removes nothing.
type away struct{ storage.Provider }

func (*away) Delete(context.Context, string, string) error {
	return providers.Errorf(providers.Unavailable, "it is away")
}

// An undo that was killed before it could tell that the slug is free is delivered again, and another session takes the slug while it works.
func TestAnUndoLeavesASlugAloneThatAnotherSessionTakesMeanwhile(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	require.Nil(t, w.perform("own", "provision", 1, b).Failure)
	b.Actions = machine.Undo(ledger())
	require.Nil(t, w.perform("own", "undo", 2, b).Failure)
	w.Databases = &meanwhile{w.workers, sync.OnceFunc(func() {
		require.Nil(t, w.perform("next", "provision", 1, task("next")).Failure)
	})}
	require.Nil(t, w.perform("own", "undo", 2, b).Failure)
	require.Equal(t, "instance_provisioning/default.acme.next", w.rows.all["acme.example.test"].Owner)
	require.DirExists(t, w.dir+"/tenants/default.tenant-acme")
}

// meanwhile are workers during whose work something happens.
type meanwhile struct {
	*workers
	happens func()
}

func (m *meanwhile) Perform(ctx context.Context, t machines.Task) machines.Result {
	m.happens()
	return m.workers.Perform(ctx, t)
}

// Who has taken a database back by hand leaves its action out; its workers hold the tenant until they are asked.
func TestAnUndoWithoutActionsOfDatabasesGivesTheTenantFree(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	require.Nil(t, w.perform("own", "provision", 1, b).Failure)
	b.Ledger = ledger()[:2]
	require.Nil(t, w.perform("own", "undo", 2, b).Failure)
	require.Empty(t, w.workers.asked, "nothing was asked of them before")
	b.Ledger = ledger()
	require.Nil(t, w.perform("own", "undo", 3, b).Failure)
	require.Equal(t, []string{""}, w.workers.asked)
}

func TestAnothersBucketIsNotTouched(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	_, err := w.env.JS.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "tenant-acme"})
	require.NoError(t, err)
	f := w.perform("own", "store", 1, b).Failure
	require.False(t, f.Retryable)
	b.Actions = machine.Undo(ledger())
	require.Nil(t, w.perform("own", "undo", 2, b).Failure)
	_, err = w.env.JS.ObjectStore(t.Context(), "tenant-acme")
	require.NoError(t, err)
}

func TestPlansAreRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Refuses = func(host string) string {
		if host == "shop.example.test" {
			return ""
		}
		return "it is the platform's: " + host
	}
	w.bindings.taken = "shop.example.test"
	w.rows.all["taken.example.test"] = domain.Row{Owner: "instance_provisioning/default.other.own"}
	for what, change := range map[string]func(*machine.RequestBody){
		"channel": func(r *machine.RequestBody) { r.Channel = "none" },
		"version": func(r *machine.RequestBody) { r.Version = "9" },
		"spec":    func(r *machine.RequestBody) { r.Spec = "huge" },
		"domain":  func(r *machine.RequestBody) { r.CustomDomain = "mine.example.test" },
		"bound":   func(r *machine.RequestBody) { r.CustomDomain = "shop.example.test" },
		"slug":    func(r *machine.RequestBody) { r.Slug = "taken" },
	} {
		b := task("default.acme.own")
		change(&b.Platform)
		f := w.perform("own", "plan", 1, b).Failure
		require.NotNil(t, f, what)
		require.False(t, f.Retryable, what)
		require.Equal(t, what == "slug", f.Code == machine.CodeSlug, what)
	}
	delete(w.rows.all, "taken.example.test")
	b := task("default.acme.own")
	b.Platform.Data = machine.DataShared
	require.Equal(t, int64(7), w.perform("own", "plan", 1, b).Data.(machine.Plan).Total)
	w.Quota = func(context.Context, *machines.Task) ([]machine.Quota, error) {
		return []machine.Quota{{Name: "instances", Used: 4, Limit: 3}}, nil
	}
	f := w.perform("own", "plan", 1, b).Failure
	require.Equal(t, machine.CodeQuota, f.Code)
	w.Quota = nil
	b.Platform.StorageBytes = 1 << 20
	require.Nil(t, w.perform("own", "plan", 1, b).Failure)
	w.Storage = &storage.S3{} // which keeps no quotas
	f = w.perform("own", "plan", 1, b).Failure
	require.NotNil(t, f)
	require.False(t, f.Retryable)
	require.Contains(t, f.Message, "none can be promised")
	require.Empty(t, w.rows.all, "a plan makes nothing")
}

// Two sessions whose plans were within the quota want the last place. Whoever has it keeps it, whatever the quota is by now.
func TestOneOfTwoGetsTheLastPlace(t *testing.T) {
	t.Parallel()
	w, limit := setup(t), int64(1)
	w.Quota = func(_ context.Context, t *machines.Task) ([]machine.Quota, error) {
		w.rows.mu.Lock()
		defer w.rows.mu.Unlock()
		used := int64(1)
		for _, r := range w.rows.all {
			if r.Owner != "" && r.Owner != machine.Machine.Name+"/"+t.Key() {
				used++
			}
		}
		return []machine.Quota{{Name: "instances", Used: used, Limit: limit}}, nil
	}
	other := task("default.acme.other")
	other.Slug, other.Name, other.PrimaryDomain = "other", "tenant-other", "other.example.test"
	ids, tasks := [2]string{"own", "other"}, [2]machine.Task{task("default.acme.own"), other}
	var all sync.WaitGroup
	var results [2]machines.Result
	for i, b := range tasks {
		require.Nil(t, w.perform(ids[i], "plan", 1, b).Failure)
	}
	for i, b := range tasks {
		all.Go(func() { results[i] = w.perform(ids[i], "provision", 2, b) })
	}
	all.Wait()
	lost := 0
	if results[0].Failure == nil {
		lost = 1
	}
	require.NotNil(t, results[lost].Failure)
	require.Equal(t, machine.CodeQuota, results[lost].Failure.Code)
	require.Equal(t, "instances: 2 with this one, of at most 1", results[lost].Failure.Message)
	require.Nil(t, results[1-lost].Failure)
	require.Len(t, w.rows.all, 1)
	limit = 0
	require.Nil(t, w.perform(ids[1-lost], "provision", 3, tasks[1-lost]).Failure)
}

func TestALookTellsWhatIsNews(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	require.Nil(t, w.perform("own", "deploy", 1, b).Failure)
	d := &machine.Data{}
	d.Phase = session.Executing
	d.Ledger = []session.Entry{{Kind: machine.KindApp, Name: "tenant-acme-r1", State: session.Intended}}
	e := &machines.Entity{Namespace: "default", Parent: "acme", ID: "own", State: machine.Deploying, Data: d}
	f, err := w.Look(t.Context(), e, true)
	require.NoError(t, err)
	require.Equal(t, machine.ReportRollout, f.Input)
	require.Equal(t, machine.Rollout{Status: "tenant-acme-r1: ready", Ready: 1, Replicas: 1}, f.Data)
	f, err = w.Look(t.Context(), e, true)
	require.NoError(t, err)
	require.Empty(t, f.Input)
	e.State = machine.Copying
	f, err = w.Look(t.Context(), e, true)
	require.NoError(t, err)
	require.Equal(t, machine.ReportProgressed, f.Input)
}

// Nothing that the machine asks for is unknown here, but for what is polled.
func TestEveryEffectIsPerformed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.Wait = time.Millisecond // for the application, which is not there
	for _, e := range machine.Machine.Effects {
		if e.Name == machine.EffectLook {
			continue
		}
		if f := w.perform("own", e.Name, 1, machine.Task{}).Failure; f != nil {
			require.NotContains(t, f.Message, "there is no effect", e.Name)
		}
	}
}
