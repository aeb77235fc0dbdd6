package instances

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/discovery"
	"github.com/bcc94042/instar/api/rest"
)

// TargetGroup is what Prometheus' HTTP service discovery reads.
type TargetGroup struct {
	Targets []string          `json:"targets" doc:"host:port"`
	Labels  map[string]string `json:"labels"`
}

// prometheusRoutes are for http_sd_configs of Prometheus.
func (s *Service) prometheusRoutes(r *rest.Router) []*rest.Route {
	rt := func(id, path, summary string) *rest.Route {
		return &rest.Route{Role: auth.Read, Serve: s.targets, Op: huma.Operation{
			OperationID: id, Method: http.MethodGet, Path: path, Tags: []string{"discovery"}, Summary: summary, Errors: []int{404, 503},
			Description: "For http_sd_configs. Lists all participating and draining instances, whatever their health, because failing ones must be scraped as well; __meta_instar_state has the state. The list is always complete, and empty if there are none.",
			Parameters:  []*huma.Param{rest.QueryParam("namespace", "The namespace, or * for all that the token may see", rest.Text(63))},
			Responses: map[string]*huma.Response{"200": {Description: "The targets, one group each", Headers: indexHeaders(), Content: map[string]*huma.MediaType{"application/json": {
				Schema: &huma.Schema{Type: huma.TypeArray, Items: r.Registry().Schema(reflect.TypeFor[TargetGroup](), true, "")},
			}}}},
		}}
	}
	return []*rest.Route{
		rt("prometheus-targets", "/v1/prometheus/targets", "List all instances as targets for Prometheus"),
		rt("prometheus-targets-of", "/v1/prometheus/targets/{service}", "List the instances of a service as targets for Prometheus"),
	}
}

func (s *Service) targets(q *rest.Request) error {
	ns, p := q.Who.Resolve(q.Query.Get("namespace"), true)
	if p != nil {
		return p
	}
	if err := s.caughtUp(q, discovery.Query{}); err != nil { // on an error Prometheus keeps the list that it has
		return err
	}
	s.setIndex(q, s.catalog.Index())
	groups := []TargetGroup{}
	for _, e := range s.catalog.Everyone(ns, q.PathValue("service")) {
		groups = append(groups, TargetGroup{[]string{e.NodeAddress}, targetLabels(&e)})
	}
	return q.JSON(http.StatusOK, groups)
}

// metaPrefix begins the labels that Prometheus drops after relabelling.
const metaPrefix = "__meta_instar_"

func targetLabels(e *discovery.Endpoint) map[string]string {
	labels := map[string]string{
		metaPrefix + "namespace": e.Namespace, metaPrefix + "service": e.Service, metaPrefix + "instance_id": e.InstanceID, metaPrefix + "state": e.State,
		metaPrefix + "weight": strconv.Itoa(e.Weight), metaPrefix + "generation": strconv.FormatUint(e.Generation, 10),
		metaPrefix + "zone": e.Zone, metaPrefix + "version": e.Version, metaPrefix + "tags": "",
	}
	if len(e.Tags) > 0 {
		labels[metaPrefix+"tags"] = "," + strings.Join(e.Tags, ",") + "," // so that ",x," matches one of them
	}
	for _, k := range slices.Sorted(maps.Keys(e.Payload)) {
		name := metaPrefix + "payload_" + labelName(k)
		if _, taken := labels[name]; !taken || labelName(k) == k { // of a.b and a-b the first, but a_b before both
			labels[name] = strings.ToValidUTF8(e.Payload[k], "�")
		}
	}
	return labels
}

// labelName makes the end of a label's name of any text, as Prometheus itself does: what it does not take becomes _.
func labelName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, s)
}
