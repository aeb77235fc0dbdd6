package grpcresolver

import (
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/bcc94042/instar/client"
)

// Policy is the name of the balancing policy: the resolver of the package client chooses, by weight, and leaves out for a
// while what fails.
const Policy = "instar_weighted"

func init() {
	balancer.Register(base.NewBalancerBuilder(Policy, pickers{}, base.Config{HealthCheck: true}))
}

type originKey struct{}

// origin is the attribute of an address: who knows its weight, and under which id. The same as long as that is so, so a
// change of a weight is no new address.
type origin struct {
	from *client.Resolver
	id   string
}

// Equal implements what attributes ask for.
func (o origin) Equal(other any) bool { return o == other }

type pickers struct{}

// Build implements [base.PickerBuilder].
func (pickers) Build(info base.PickerBuildInfo) balancer.Picker {
	p := picker{ready: map[string]balancer.SubConn{}}
	for conn, about := range info.ReadySCs {
		if o, ok := originOf(about.Address); ok {
			p.from, p.ready[o.id] = o.from, conn
		}
	}
	if p.from == nil {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	return p
}

func originOf(a resolver.Address) (origin, bool) {
	//lint:ignore SA1019 the picker sees addresses, and their endpoints only since later releases
	o, ok := a.BalancerAttributes.Value(originKey{}).(origin)
	return o, ok
}

// picker are the connections that are ready, by the ids of their instances.
type picker struct {
	from  *client.Resolver
	ready map[string]balancer.SubConn
}

// Pick implements [balancer.Picker].
func (p picker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	choice, err := p.from.PickFrom(func(id string) bool { return p.ready[id] != nil })
	if err != nil {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable // another list comes soon
	}
	return balancer.PickResult{SubConn: p.ready[choice.InstanceID], Done: func(how balancer.DoneInfo) { choice.Done(outcome(how)) }}, nil
}

// outcome is what the end of a call says about the instance, as 503 and 504 do over HTTP.
func outcome(how balancer.DoneInfo) client.Outcome {
	switch code := status.Code(how.Err); {
	case code == codes.Unavailable, code == codes.DeadlineExceeded:
		return client.Failed
	case code == codes.Canceled, how.Err == nil && !how.BytesReceived: // the caller gave up; it was never sent
		return client.Unknown
	}
	return client.OK
}
