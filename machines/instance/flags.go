package instance

import (
	"cmp"
	"time"

	"github.com/bcc94042/instar/machines"
)

func protect(s *step) {
	s.Data.Protected = true
}

// unprotect: what fell silent meanwhile gets a whole window before it is taken for dead.
func unprotect(s *step) {
	s.Data.Protected, s.Data.Overdue = false, time.Time{}
	again(s)
}

func (b *MaintenanceBody) reason(s *step) string { return cmp.Or(b.Reason, s.In.Reason) }

func (b *MaintenanceBody) until(now time.Time) time.Time {
	if b.For == "" {
		return time.Time{}
	}
	return now.Add(duration(b.For, 0))
}

func maintain(s *step) {
	b := machines.Body[MaintenanceBody](s)
	s.Data.Maintenance = &Maintenance{Reason: b.reason(s), Until: b.until(s.Now()), By: s.In.Actor}
	s.Detail(EventMaintenanceBegun, s.Data.Maintenance)
}

// maintenanceUntil is when a maintenance ends by itself; the zero time is never.
func maintenanceUntil(d *Data) time.Time {
	if d.Maintenance == nil {
		return time.Time{}
	}
	return d.Maintenance.Until
}

func maintained(s *step) {
	s.Detail(EventMaintenanceEnded, s.Data.Maintenance)
	s.Data.Maintenance = nil
}

func pin(s *step) {
	b := machines.Body[PinBody](s)
	s.Detail(EventWeightPinned, map[string]any{"weight": b.Weight, "before": s.Data.Pinned, "registered": s.Data.Weight})
	s.Data.Pinned = b.Weight
}

func label(s *step) {
	b := machines.Body[LabelBody](s)
	s.Detail(EventLabels, map[string]any{"labels": b.Labels, "before": s.Entity().Labels})
	s.Label(b.Labels)
}
