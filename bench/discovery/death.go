package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// death measures when the silence of one instance at a time is noticed, beyond the time that it may be silent.
func death(ctx context.Context, o *options) error {
	const ttl, grace, deaths = 2 * time.Second, time.Second, 6 // of 50: more than 15 % at once would be protected
	fmt.Printf("\nsilent death, TTL %s, grace %s\n", ttl, grace)
	s, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer s.stop()
	f, _, err := register(ctx, s, crowd{o.perOne, o.perOne, ttl.String(), grace.String(), nil})
	if err != nil {
		return err
	}
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	living, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := follow(living, s, "/v1/discover/"+f.service(0)+"/watch")
	if err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	died := map[string]time.Time{} // last beat of the dead
	alive := map[string]bool{}
	var lats []time.Duration
	limit := time.After(2 * time.Minute)
	for begun := time.Now(); len(lats) < deaths; {
		select {
		case now := <-tick.C:
			if due := int(now.Sub(begun)/time.Second) - 5; len(alive) == f.size && due > len(died) && len(died) < deaths {
				died[f.ids[len(died)*5]] = now // beats once more, then never again
				for id := range died {
					if died[id] == now {
						_ = nc.Publish("instar.hb.default."+f.service(0)+"."+id, nil)
					}
				}
			}
			for _, id := range f.ids {
				if died[id].IsZero() {
					_ = nc.Publish("instar.hb.default."+f.service(0)+"."+id, nil)
				}
			}
			if err := nc.Flush(); err != nil {
				return err
			}
		case e, ok := <-events:
			if !ok {
				return fmt.Errorf("the watch ended")
			}
			var d struct {
				delta
				Instances []struct {
					InstanceID string `json:"instanceId"`
				} `json:"instances"`
			}
			if err := json.Unmarshal(e.data, &d); err != nil {
				return err
			}
			for _, i := range d.Instances {
				alive[i.InstanceID] = true
			}
			for _, p := range d.Put {
				alive[p.InstanceID] = true
			}
			for _, id := range d.Remove {
				at, dead := died[id]
				if !dead {
					return fmt.Errorf("%s was removed, and beats", id)
				}
				lats = append(lats, e.at.Sub(at)-ttl-grace)
			}
		case <-limit:
			return fmt.Errorf("%d of %d deaths were not noticed", deaths-len(lats), deaths)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	slices.Sort(lats)
	row("removed after TTL + grace +", fmt.Sprintf("p50 %s, max %s", quantile(lats, 0.5), lats[len(lats)-1].Round(time.Millisecond)), "at most 500 ms")
	return nil
}
