package providers

import (
	"context"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
)

// Look observes one service and gives the report to send, if there is any news. polled is false when the gateway itself
// was the reason to look: then the same trouble as last time is no news, because only polls are counted. Panics of the
// gateway are errors.
func (s Serving) Look(ctx context.Context, e *machines.Entity, polled bool) (finding machines.Finding, err error) {
	defer func() {
		if p := recover(); p != nil {
			finding, err = machines.Finding{}, s.panicked(p)
		}
	}()
	data, ok := e.Data.(*service.Data)
	if !ok {
		return machines.Finding{}, Errorf(Invalid, "entity %s has data of type %T", e.Key(), e.Data)
	}
	if polled && service.Skip(e, s.now(), s.ReadyStale) {
		return machines.Finding{Until: data.ObservedAt.Add(s.ReadyStale)}, nil
	}
	req := Request{Namespace: e.Namespace, Name: e.ID, UID: data.UID, Hash: data.SpecHash, Fence: e.Version}
	o, err := s.observe(ctx, req)
	switch {
	case err != nil:
		return machines.Finding{}, err
	case e.State == service.Deleting && gone(data, &o):
		return machines.Finding{Input: ReportDeleted}, nil
	case !polled && o.Ready != machines.True && service.SameSight(e, &o):
		return machines.Finding{}, nil
	case service.Meaningful(e, &o):
		return machines.Finding{Input: ReportObserved, Data: o}, nil
	}
	return machines.Finding{}, nil
}

// gone reports whether what was applied for the service is there no more. An object of the same name with another
// uid is somebody else's.
func gone(data *service.Data, o *service.Observation) bool {
	if !o.Exists {
		return true
	}
	return data.Applied != nil && data.Applied.UID != "" && o.UID != "" && o.UID != data.Applied.UID
}
