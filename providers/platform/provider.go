package platform

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	domains "github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// Databases performs the effects of machines/database, and looks at its sessions.
type Databases interface {
	Perform(ctx context.Context, t machines.Task) machines.Result
	Look(ctx context.Context, e *machines.Entity, polled bool) (machines.Finding, error)
}

// Issuer has certificates; [domain.Certificates] is one.
type Issuer interface {
	Obtain(ctx context.Context, host string) (domains.Certificate, error)
	// Current is the certificate that there is, when it is due, and why its last renewal has failed; one that is due is begun.
	Current(ctx context.Context, host string) (has *domains.Certificate, due time.Time, trouble string, err error)
	Forget(ctx context.Context, host string) error
}

// Binding is a custom domain of a tenant.
type Binding struct {
	Namespace, Tenant, Host string
	Session                 string // id of the session whose it is
	Life                    uint64 // of the session: its generation; 0 where that is not known
	Route                   domains.Route
	Anew                    bool      // it is bound where it is not, or not any more
	Kept                    bool      // the tenant keeps it
	Made                    time.Time // when the session had made it, as its ledger says; zero where it has not
}

// Domains are the entities of machines/domain. One that the session has not bound is never touched.
type Domains interface {
	// Check fails as Invalid where a name is bound already, and not by the session, and as Unavailable where it is just being removed.
	Check(ctx context.Context, b Binding) error
	// Point changes where a name leads, or asks for it where b says so, and returns the key of its entity. It does not wait for the name. One that somebody has removed, or has bound
	// besides, is left alone otherwise.
	Point(ctx context.Context, b Binding) (key string, err error)
	// Remove takes a name of the session away, or leaves it to the tenant, so that it is no session's any more, where b says so. That there is none, or only another's, is fine.
	Remove(ctx context.Context, b Binding) error
	// Leading is a name that the proxies send to an address, or that a domain of the tenant is to send there, whoever has bound it and whether it is proven or not; empty when there is none.
	// removed reports whether it is being removed.
	Leading(ctx context.Context, namespace, tenant, address string) (host string, removed bool, err error)
}

// Size is what an instance gets.
type Size struct {
	StorageBytes int64      // quota of its bucket, where the request has none
	Limits       app.Limits // of each release
}

// Traffic is what became of requests.
type Traffic struct {
	Requests int64
	Errors   int64 // answered with 500 or above, or not at all
	Hung     int64 // of the requests, that were not answered for longer than a health check may take, whether they were later or not
}

// Provider performs effects. Its fields are set before its first use.
type Provider struct {
	Domain    string            // below which slugs are primary domains
	Channels  map[string]string // version by release channel
	Sizes     map[string]Size   // by instanceSpec
	Env       map[string]string // of every release, below what is the tenant's
	Health    domains.Health    // of the primary domain's targets
	Readiness string            // path that a ready application answers below 400; / when empty

	Table     domain.Table
	Issuer    Issuer
	Apps      app.Provider
	Storage   storage.Provider
	Databases Databases
	Domains   Domains // nil takes no custom domains

	// Refuses is why a custom domain cannot be bound, empty if it can; nil refuses none.
	Refuses func(host string) string

	// Client reaches primary domains as users do, through the proxy.
	Client *http.Client
	// Direct reaches releases under their addresses, which may have the name of a host.
	Direct *http.Client
	// Secrets are those of a release, by variable: what it needs to enter its database. With an error there may be some of them.
	Secrets func(enterprise string, has *database.Allocated) (map[string]string, error)
	// Keys are those of releases to their tenants' buckets; nil has none.
	Keys Keys
	// Quota is what is used up with a session, by who has a name below the domain; nil has no limits. It is asked by the plan, and again while the slug is reserved, one session at a time.
	Quota func(ctx context.Context, t *machines.Task) ([]machine.Quota, error)
	// Place is the server that the database of a request will be on; nil leaves that to Databases, at each task.
	Place func(ctx context.Context, r *database.RequestBody) (string, *machines.Failure)
	// Approval reports whether the policy asks for approve; nil never does.
	Approval func(t *machines.Task) bool
	// Export saves what a tenant has before it is taken away; nil refuses to.
	Export func(ctx context.Context, t *machines.Task, b *machine.Task) error
	// Exportable says why Export of this would fail now, as far as that is known before anything is taken away; nil knows nothing.
	Exportable func(t *machines.Task, b *machine.Task) error
	// Traffic counts what a target of a name was asked since it is one; nil counts nothing.
	Traffic func(host, address string) Traffic

	// InFlight is how many requests to an address have not ended, with connections that were upgraded; nil knows of none.
	InFlight func(address string) int

	Settle time.Duration // between another route and the end of a release; 2 s when 0
	Drain  time.Duration // for what a release still answers until it ends nevertheless; 30 s when 0
	Wait   time.Duration // for an application to become ready; 2 min when 0

	entry sync.Mutex // of who asks for the quota and takes a slug
	told  sync.Map   // the last status of a deployment that was told, by entity
}

// job is one task with what it says.
type job struct {
	*Provider
	task  *machines.Task
	body  machine.Task
	owner string

	drainBy time.Time // when what releases still answer is waited for no longer; it begins with the first of them, as nothing leads to the others either
}

// effectRoute is the only one that binds a custom domain.
const effectRoute = "route"

// perform are the effects, by name.
var perform = map[string]func(*job, context.Context) (any, error){
	"plan": (*job).plan, "provision": (*job).provision, "store": (*job).store, "deploy": (*job).deploy,
	effectRoute: (*job).route, "certify": (*job).certify, "probe": (*job).probe,
	"allocate": (*job).database, "migrate": (*job).migrate, "copy": (*job).database, "verify": (*job).database, "switch": (*job).database,
	"shift": (*job).shift, "retire": (*job).retire, machine.EffectWithdraw: (*job).withdraw,
	machine.EffectHalt: (*job).halt, machine.EffectUndo: (*job).undo,
}

// Perform does one task.
func (p *Provider) Perform(ctx context.Context, t machines.Task) machines.Result {
	j := &job{Provider: p, task: &t, owner: owner(t.Key())}
	if err := json.Unmarshal(t.Data, &j.body); err != nil {
		return machines.Result{Failure: providers.Failure(providers.Errorf(providers.Invalid, "cannot read the task %s: %v", t.Attempt, err))}
	}
	do := perform[t.Effect]
	if do == nil {
		return machines.Result{Failure: providers.Failure(providers.Errorf(providers.Invalid, "there is no effect %s of an instance", t.Effect))}
	}
	data, err := do(j, ctx)
	if err != nil {
		return machines.Result{Failure: j.failure(ctx, err)}
	}
	return machines.Result{Data: data}
}

func failure(err error) *machines.Failure {
	var unhealthy *app.UnhealthyError
	if errors.As(err, &unhealthy) {
		return &machines.Failure{Code: "DEPLOYMENT_UNHEALTHY", Message: err.Error(), Retryable: true, Details: lastLines(unhealthy.Log)}
	}
	return providers.Failure(err)
}

// lastLines are the details of a failure with a log: as many of its last lines as details may have. Nil where there is none.
func lastLines(log string) json.RawMessage {
	if log == "" {
		return nil
	}
	for lines := strings.Split(log, "\n"); len(lines) > 0; lines = lines[1:] {
		raw, err := json.Marshal(map[string][]string{"log": lines})
		if err == nil && len(raw) <= machines.MaxDetails {
			return raw
		}
	}
	return nil
}

// before fails where the session is older than what the tenant has, as after a restore: one that is on its way to its database and in it already would have its traffic led back, and
// an upgrade would have the name of the release that serves.
func (j *job) before(ctx context.Context) error {
	if j.body.Upgrade != nil {
		_, err := j.serves(ctx)
		return err
	}
	t := *j.task
	t.Effect = database.ActionCheck
	if r := j.Databases.Perform(ctx, t); r.Failure != nil {
		return &providers.CodedError{Failure: *r.Failure}
	}
	return nil
}

// migrate changes the tables of a tenant, and none that serve a newer version.
func (j *job) migrate(ctx context.Context) (any, error) {
	if err := j.before(ctx); err != nil {
		return nil, err
	}
	return j.database(ctx)
}

// database has the task performed by the workers of databases.
func (j *job) database(ctx context.Context) (any, error) {
	r := j.Databases.Perform(ctx, *j.task)
	if r.Failure != nil {
		return nil, &providers.CodedError{Failure: *r.Failure}
	}
	return r.Data, nil
}
