package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
)

// TenantSize is a size of the catalogue.
type TenantSize struct {
	Name string `json:"name" doc:"What requests call it: dbSpec"`
	Size
	Revision uint64 `json:"revision" doc:"Revision of the stored value, for If-Match"`
}

// TenantSizes are all of them.
type TenantSizes struct {
	Items []TenantSize `json:"items" nullable:"false"`
}

// SetTenantSize is what a size is set to.
type SetTenantSize struct {
	Regions map[string][]string `json:"regions,omitempty" doc:"Names of servers of the configuration, by region; none when there are none: the size is refused then"`
	Reset   bool                `json:"reset,omitempty" doc:"Instead: what the configuration says, from now on"`
}

// routes are the operations on the catalogue.
func (c *catalogue) routes(r *rest.Router) []*rest.Route {
	tags := []string{"tenants"}
	schema := r.Registry().Schema(reflect.TypeFor[SetTenantSize](), true, "")
	return []*rest.Route{
		{Role: auth.Read, Serve: c.show, Op: huma.Operation{
			OperationID: "list-tenant-sizes", Method: http.MethodGet, Path: "/v1/tenant-sizes", Tags: tags, Summary: "List the sizes of tenants' databases", Errors: []int{503},
			Description: "Which servers get new databases of a size, by region. What nobody has set is what the configuration says (tenants.servers).",
			Responses:   map[string]*huma.Response{"200": {Description: "All sizes", Content: r.BodyOf(reflect.TypeFor[TenantSizes]())}},
		}},
		{Role: auth.Admin, Serve: func(q *rest.Request) error { return c.set(q, schema) }, Op: huma.Operation{
			OperationID: "set-tenant-size", Method: http.MethodPut, Path: "/v1/tenant-sizes/{size}", Tags: tags, Summary: "Set which servers get databases of a size", Errors: []int{404, 412, 503},
			Description: "It is for sessions that are planned from now on: a plan keeps its server. Databases that are there stay where they are.",
			Parameters:  []*huma.Param{rest.HeaderParam("If-Match", "Refuse it unless the size is at this revision", `"42"`)},
			RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}},
			Responses:   map[string]*huma.Response{"200": {Description: "The size as it is now", Content: r.BodyOf(reflect.TypeFor[TenantSize]())}},
		}},
	}
}

func (c *catalogue) show(q *rest.Request) error {
	all, err := c.list(q.Context())
	if err != nil {
		return err
	}
	out := TenantSizes{Items: []TenantSize{}}
	for _, e := range all {
		if !e.Value.Set && len(e.Value.Regions) == 0 { // the configuration has it no more
			continue
		}
		out.Items = append(out.Items, TenantSize{Name: e.Key, Size: e.Value, Revision: e.Revision})
	}
	return q.JSON(http.StatusOK, out)
}

func (c *catalogue) set(q *rest.Request, schema *huma.Schema) error {
	if q.Who.Namespace != auth.AnyNamespace {
		return problem.New(problem.CodeForbidden, "a token of one namespace may not change what all of them use")
	}
	raw, p := q.Body(schema)
	if p != nil {
		return p
	}
	var b SetTenantSize
	if err := json.Unmarshal(raw, &b); err != nil {
		return problem.Invalid("body", "is no size")
	}
	size := q.PathValue("size")
	next := Size{Regions: b.Regions, Set: true}
	if b.Reset {
		var known bool
		if next, known = c.configured()[size]; !known {
			if p := c.gone(q.Context(), size); p != nil {
				return p
			}
		}
	}
	if next.Regions == nil {
		next.Regions = map[string][]string{}
	}
	if p := c.check(next); p != nil {
		return p
	}
	ctx, cancel := context.WithTimeout(q.Context(), 10*time.Second)
	defer cancel()
	revision, err := c.write(ctx, size, next, q.R.Header.Get("If-Match"))
	if err != nil {
		return err
	}
	c.log.Info("a size of tenants' databases was set", "size", size, "regions", next.Regions, "by the configuration", !next.Set, "actor", q.Who.Name, "request", q.Id)
	q.W.Header().Set("ETag", rest.ETag(revision))
	return q.JSON(http.StatusOK, TenantSize{Name: size, Size: next, Revision: revision})
}

// gone refuses a size that nobody has set.
func (c *catalogue) gone(ctx context.Context, size string) error {
	e, err := c.sizes.Get(ctx, sizeKey+size)
	if errors.Is(err, kv.ErrNotFound) || err == nil && !e.Value.Set {
		return problem.New(machines.CodeNotFound, "there is no size "+size)
	}
	if errors.Is(err, kv.ErrCorrupt) {
		return nil
	}
	return err
}

// check refuses what no database could be made on.
func (c *catalogue) check(of Size) *problem.Problem {
	for _, region := range slices.Sorted(maps.Keys(of.Regions)) {
		if !machines.IsLabel(region) {
			return problem.Invalid("body.regions", fmt.Sprintf("%q is no name of a region: %s", region, problem.LabelRule))
		}
		for i, name := range of.Regions[region] {
			if slices.Contains(of.Regions[region][:i], name) {
				return problem.Invalid("body.regions."+region, fmt.Sprintf("names the server %q twice", name))
			}
			if !c.has(name) {
				return problem.Invalid("body.regions."+region, fmt.Sprintf("the configuration of this server (tenants.servers) has no server %q", name))
			}
		}
	}
	return nil
}

// write stores a size where it is at the revision that If-Match names, or wherever it is.
func (c *catalogue) write(ctx context.Context, size string, next Size, match string) (revision uint64, err error) {
	for {
		e, err := c.sizes.Get(ctx, sizeKey+size)
		if err != nil && !errors.Is(err, kv.ErrNotFound) && !errors.Is(err, kv.ErrCorrupt) {
			return 0, err
		}
		if match != "" && match != strconv.Quote(strconv.FormatUint(e.Revision, 10)) {
			return 0, problem.New(machines.CodePrecondition, fmt.Sprintf("the size %s is at revision %d", size, e.Revision))
		}
		if revision, err = c.sizes.Put(ctx, sizeKey+size, next, e.Revision); !errors.Is(err, kv.ErrConflict) {
			return revision, err
		}
	}
}
