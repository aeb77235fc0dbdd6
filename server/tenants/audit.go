package tenants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/bcc94042/instar/consumers/audit"
	"github.com/bcc94042/instar/internal/archive"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/streams"
	records "github.com/bcc94042/instar/streams/audit"
)

// audits makes the streams of the audit where they are not there, and has them keep their records as long as the configuration says. Of a class that it does not name, a stream that is there keeps what it has: somebody
// may have set it by hand, and what is removed too early is gone for good.
func audits(ctx context.Context, h *server.Host) error {
	for _, class := range streams.Classes {
		c := records.Stream(h.Deps.Names, class, h.Replicas)
		kept, named := h.Config.Tenants.Audit[class]
		if named {
			c.MaxAge = kept
		}
		s, err := h.Deps.JS.Stream(ctx, c.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if _, err = h.Deps.JS.CreateStream(ctx, c); err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // by another node
				return fmt.Errorf("cannot make the stream %s: %w", c.Name, err)
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot look at stream %s: %w", c.Name, err)
		}
		if !named {
			continue
		}
		next, changed := records.Extend(s.CachedInfo().Config, c.MaxAge, time.Now())
		if !changed {
			continue
		}
		if before := s.CachedInfo().Config.MaxAge; before == 0 || kept < before { // 0 is for ever
			h.Log.Warn("records of the audit are kept for a shorter time than before, and those that are older than that are removed", "class", class, "before", before, "now", kept)
		}
		if _, err := h.Deps.JS.UpdateStream(ctx, next); err != nil {
			return fmt.Errorf("cannot have the stream %s keep its records for %s: %w", c.Name, c.MaxAge, err)
		}
	}
	return nil
}

// problems are those of the export of records.
var problems = prometheus.CounterOpts{Name: "instar_audit_export_problems_total", Help: "Problems of the export of records of the audit: tries that failed, records that were missed, and records that are not right."}

// export copies the records to where the configuration says, on one node at a time.
func export(ctx context.Context, h *server.Host) error {
	count := prometheus.NewCounterVec(problems, []string{"class", "problem"})
	for _, class := range streams.Classes {
		for _, problem := range audit.Problems {
			count.WithLabelValues(class, problem)
		}
	}
	if err := h.Register(count); err != nil {
		return err
	}
	to := h.Config.Tenants.AuditExport
	if to == "" {
		return nil
	}
	f, err := archive.OpenFolder(to)
	if err != nil {
		return fmt.Errorf("tenants.auditExport: %w", err)
	}
	h.Role(ctx, RoleExport, (&audit.Exporter{Deps: h.Deps, To: f, Count: func(class, problem string) { count.WithLabelValues(class, problem).Inc() }}).Run)
	return nil
}
