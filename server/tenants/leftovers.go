package tenants

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/server"
)

// TenantLeftover is something of moves that no session is about, or that one is about and that is not there.
type TenantLeftover struct {
	Kind    string `json:"kind" enum:"database,role,quarantine,missing,session,fence,slot,publication" doc:"missing is a database that is not there"`
	Name    string `json:"name"`
	On      string `json:"on" doc:"server NAME, shared database, or the tables there"`
	Tenant  string `json:"tenant,omitempty"`
	Session string `json:"session,omitempty" doc:"That it was made for"`
	Reason  string `json:"reason" doc:"What it means, and what to do"`
}

// TenantLeftovers are all of them.
type TenantLeftovers struct {
	Items []TenantLeftover `json:"items" nullable:"false"`
}

// leftovers compares what the databases have with the sessions that go on.
type leftovers struct {
	*performer
	door   *door
	counts *prometheus.GaugeVec
}

func (l *leftovers) routes(r *rest.Router) []*rest.Route {
	return []*rest.Route{{Role: auth.Read, Serve: l.show, Op: huma.Operation{
		OperationID: "list-tenant-leftovers", Method: http.MethodGet, Path: "/v1/tenant-leftovers", Tags: []string{"tenants"}, Summary: "List what moves of tenants have left", Errors: []int{503},
		Description: "Databases, roles, fences, slots and publications that no session is about, and databases that are not there. It is compared with the sessions when it is asked, and changes nothing. It needs a token of all namespaces.",
		Responses:   map[string]*huma.Response{"200": {Description: "All of it", Content: r.BodyOf(reflect.TypeFor[TenantLeftovers]())}},
	}}}
}

func (l *leftovers) show(q *rest.Request) error {
	if p := q.Who.OfAll("leftovers of tenants"); p != nil {
		return p
	}
	ctx, cancel := context.WithTimeout(q.Context(), 30*time.Second)
	defer cancel()
	out := TenantLeftovers{Items: []TenantLeftover{}}
	found, err := l.list(ctx)
	if err != nil {
		return problem.Unavailable("cannot compare the databases of tenants with their sessions: " + err.Error())
	}
	for _, f := range found {
		out.Items = append(out.Items, TenantLeftover(f))
	}
	return q.JSON(http.StatusOK, out)
}

// kinds of leftovers.
var kinds = []string{"database", "role", "quarantine", "missing", "session", "fence", "slot", "publication"}

// gauges are how many there were of each kind when they were counted last.
func (l *leftovers) gauges(h *server.Host) error {
	l.counts = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "instar_tenant_leftovers", Help: "What moves of tenants have left that no session is about; 0 where another node counts."}, []string{"kind"})
	l.tell(nil)
	return h.Register(l.counts)
}

func (l *leftovers) tell(found []database.Leftover) {
	of := map[string]int{}
	for _, f := range found {
		of[f.Kind]++
	}
	for _, kind := range kinds {
		l.counts.WithLabelValues(kind).Set(float64(of[kind]))
	}
}

// hour tells where tenants are, sweeps, and counts, and returns when the hour is over; false when ctx ends before. It tells and counts again and again until it can: the shared database may be away when the server
// starts, and applications would go where tenants were.
func (l *leftovers) hour(ctx context.Context, h *server.Host) bool {
	hour, end := context.WithTimeout(ctx, time.Hour)
	defer end()
	told := l.performer.tellAgain(hour, h)
	l.performer.sweep(hour, h)
	for counted := l.count(hour, h); (!told || !counted) && wait.For(hour, time.Minute/4); {
		told = told || l.performer.tellAgain(hour, h)
		counted = counted || l.count(hour, h)
	}
	<-hour.Done()
	return ctx.Err() == nil
}

// count tells how many there are. Where that cannot be seen, what was told last stays.
func (l *leftovers) count(ctx context.Context, h *server.Host) (counted bool) {
	found, err := l.list(ctx)
	if err == nil {
		l.tell(found)
	} else if ctx.Err() == nil {
		h.Log.Warn("what moves of tenants have left cannot be counted; trying again", "error", err)
	}
	return err == nil
}

func (l *leftovers) list(ctx context.Context) (list []database.Leftover, err error) {
	var sessions map[string]bool // read when it is first asked for: what was read before has its session by then
	known := func(name string) bool {
		if sessions == nil {
			sessions = l.door.sessions()
		}
		return sessions[name]
	}
	for _, k := range l.door.kinds {
		select {
		case <-k.Index.Ready():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if quiet := k.Index.Stale(); quiet > 0 { // what has begun since would look as if nobody knew it
			return nil, fmt.Errorf("the last that this server heard of the sessions is %s old", quiet.Round(time.Second))
		}
	}
	if list, err = l.servers[0].provider.SharedLeftovers(ctx, known); err != nil {
		return nil, err
	}
	for _, s := range l.servers {
		sessions = nil
		more, err := s.provider.Leftovers(ctx, known)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

// sessions are those that have a tenant, of all machines, as the databases name them.
func (d *door) sessions() map[string]bool {
	all := map[string]bool{}
	for name, item := range d.holders() {
		all[database.SessionName(name, item.Key)] = true
	}
	return all
}
