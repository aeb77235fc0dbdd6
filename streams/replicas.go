package streams

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// fewBehind is how many writes a replica may be behind that is spoken to: under load the last ones are always on their way.
const fewBehind = 64

// Behind are the streams of the plan of which the server holds a replica that is not current, each with the reason, sorted. Their
// leaders are asked, all at once: the server itself does not know what it has missed. One that does not answer before ctx ends
// is among them. What the server does not hold is not. Then held is asked, which tells the last sequences that the server itself has
// (Held of package embedded): a leader takes a replica for current that has agreed to all that was written, and still fetches what was
// written while it was away.
func (p Plan) Behind(ctx context.Context, js jetstream.JetStream, server string, held func() (map[string]uint64, error)) []string {
	configs := p.Configs()
	infos := make([]*jetstream.StreamInfo, len(configs))
	var all sync.WaitGroup
	for i, c := range configs {
		all.Go(func() {
			if s, err := Led(ctx, js, c.Name); err == nil {
				infos[i] = s.CachedInfo()
			}
		})
	}
	all.Wait()
	last, err := held()
	var behind []string
	for i, c := range configs {
		why := "no leader answers"
		switch {
		case infos[i] == nil:
		case err != nil:
			why = err.Error()
		default:
			why = replicaBehind(infos[i], server, last[c.Name])
		}
		if why != "" {
			behind = append(behind, c.Name+": "+why)
		}
	}
	slices.Sort(behind)
	return behind
}

func replicaBehind(info *jetstream.StreamInfo, server string, last uint64) string {
	c := info.Cluster
	if c == nil || c.Leader == server {
		return ""
	}
	for _, r := range c.Replicas {
		switch {
		case r.Name != server:
		case r.Offline:
			return "its leader does not hear from it"
		case !r.Current && (r.Lag == 0 || r.Lag > fewBehind):
			return fmt.Sprintf("%d writes behind", r.Lag)
		case last+fewBehind < info.State.LastSeq:
			return fmt.Sprintf("%d writes behind", info.State.LastSeq-last)
		}
	}
	return ""
}
