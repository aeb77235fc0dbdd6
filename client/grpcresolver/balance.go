package grpcresolver

import (
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/resolver"
)

// Policy is the name of the balancing policy: by chance, in proportion to the weights.
const Policy = "instar_weighted"

func init() {
	balancer.Register(base.NewBalancerBuilder(Policy, pickers{}, base.Config{HealthCheck: true}))
}

type weightKey struct{}

// weight is the attribute of an address. Equal only to itself.
type weight struct{ cell *atomic.Int64 }

// Equal implements what attributes ask for.
func (w weight) Equal(o any) bool { return w == o }

// Weight is the weight that the registry gave an address, now; false for an address of another resolver.
func Weight(a resolver.Address) (int, bool) {
	w, ok := a.BalancerAttributes.Value(weightKey{}).(weight)
	if !ok {
		return 0, false
	}
	return int(w.cell.Load()), true
}

type pickers struct{}

// Build implements [base.PickerBuilder].
func (pickers) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	var p picker
	for conn, about := range info.ReadySCs {
		p = append(p, choice{conn, about.Address})
	}
	return p
}

// picker are the connections that are ready.
type picker []choice

type choice struct {
	conn    balancer.SubConn
	address resolver.Address
}

// Pick implements [balancer.Picker]. What has no weight is picked only when nothing has any.
func (p picker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	weights, sum := make([]int, len(p)), 0
	for i, c := range p {
		w, ok := Weight(c.address)
		if !ok {
			w = 1
		}
		weights[i] = max(w, 0)
		sum += weights[i]
	}
	if sum == 0 {
		return balancer.PickResult{SubConn: p[rand.IntN(len(p))].conn}, nil
	}
	n := rand.IntN(sum)
	for i, w := range weights {
		if n -= w; n < 0 {
			return balancer.PickResult{SubConn: p[i].conn}, nil
		}
	}
	return balancer.PickResult{SubConn: p[len(p)-1].conn}, nil
}
