package xds

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointpb "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/bcc94042/instar/api/discovery"
)

// The stages that Envoy has a word for.
const (
	suspect  = "active.suspect"
	draining = "draining"
)

// assignment is what Envoy learns of a service, and how many endpoints it cannot learn of. The same endpoints give the same
// assignment.
func assignment(name string, all []discovery.Endpoint) (out *endpointpb.ClusterLoadAssignment, left int) {
	zones := map[string]*endpointpb.LocalityLbEndpoints{}
	for _, e := range all {
		address, err := netip.ParseAddrPort(e.NodeAddress)
		if err != nil {
			left++
			continue
		}
		zone := zones[e.Zone]
		if zone == nil {
			zone = &endpointpb.LocalityLbEndpoints{LoadBalancingWeight: wrapperspb.UInt32(0)}
			if e.Zone != "" {
				zone.Locality = &corepb.Locality{Zone: e.Zone}
			}
			zones[e.Zone] = zone
		}
		weight := uint32(min(max(e.Weight, 1), 65535)) // 0 is not valid; such an endpoint drains
		zone.LoadBalancingWeight.Value += weight
		zone.LbEndpoints = append(zone.LbEndpoints, &endpointpb.LbEndpoint{
			HostIdentifier:      &endpointpb.LbEndpoint_Endpoint{Endpoint: &endpointpb.Endpoint{Address: socket(address)}},
			HealthStatus:        health(e),
			Metadata:            metadata(e),
			LoadBalancingWeight: wrapperspb.UInt32(weight),
		})
	}
	out = &endpointpb.ClusterLoadAssignment{ClusterName: name}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		out.Endpoints = append(out.Endpoints, zones[zone])
	}
	return out, left
}

func socket(a netip.AddrPort) *corepb.Address {
	return &corepb.Address{Address: &corepb.Address_SocketAddress{SocketAddress: &corepb.SocketAddress{
		Address: a.Addr().Unmap().WithZone("").String(), PortSpecifier: &corepb.SocketAddress_PortValue{PortValue: uint32(a.Port())},
	}}}
}

func health(e discovery.Endpoint) corepb.HealthStatus {
	switch {
	case e.State == draining || e.Weight <= 0:
		return corepb.HealthStatus_DRAINING
	case e.State == suspect:
		return corepb.HealthStatus_DEGRADED
	}
	return corepb.HealthStatus_HEALTHY
}

// metadata is what subsets can choose by.
func metadata(e discovery.Endpoint) *corepb.Metadata {
	fields := map[string]*structpb.Value{}
	for k, v := range e.Payload {
		fields[strings.ToValidUTF8(k, "?")] = structpb.NewStringValue(strings.ToValidUTF8(v, "?"))
	}
	fields["instanceId"] = structpb.NewStringValue(e.InstanceID)
	if e.Version != "" {
		fields["version"] = structpb.NewStringValue(e.Version)
	}
	return &corepb.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": {Fields: fields}}}
}
