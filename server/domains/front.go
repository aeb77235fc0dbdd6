package domains

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/domain/proxy"
)

// Front is the proxy of this node, for other machines whose names it serves; [server.Shared] has it where there is one. As a [domain.Table] it is the one that the proxies of all nodes follow.
type Front struct {
	*table
	Issuer *domain.Certificates
	Addr   string // where it listens for TLS

	// Traffic is what the proxy of this node has sent to a target of a name, see [proxy.Proxy.Traffic].
	Traffic func(host, address string) proxy.Count
	// Refuses is why a name cannot be bound, empty if it can.
	Refuses func(host string) string
	// InFlight is how many requests to an address have not ended, see [proxy.Proxy.InFlight].
	InFlight func(address string) int
}

// Owners are who has a name, each once, and in no order.
func (f *Front) Owners(ctx context.Context) ([]string, error) {
	all := map[string]bool{}
	for e, err := range f.rows.List(ctx, "") {
		if err != nil {
			return nil, err
		}
		if e.Value.Owner != "" {
			all[e.Value.Owner] = true
		}
	}
	return slices.Collect(maps.Keys(all)), nil
}

// Rows are the names with their rows. One that is written meanwhile may come twice.
func (f *Front) Rows(ctx context.Context) iter.Seq2[string, domain.Row] {
	return func(yield func(string, domain.Row) bool) {
		for e, err := range f.rows.List(ctx, "") {
			if err == nil && !yield(e.Key, e.Value) { // a row that cannot be read is nobody's here
				return
			}
		}
	}
}
