package task

import (
	"time"

	"github.com/adhocore/gronx"

	"github.com/bcc94042/instar/machines"
)

func checkCron(f *machines.Findings, expr, zone string) {
	if zone != "" && expr == "" {
		f.Add("timeZone", "is given without cron")
	}
	if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
		f.Add("timeZone", "%.64q is not a time zone such as Europe/Berlin", zone)
	}
	text(f, "cron", expr, 128)
	if expr != "" && !gronx.IsValid(expr) {
		f.Add("cron", "is not a cron expression such as 0 3 * * *")
	}
}

// next is when a schedule comes next after a time; the zero time when it never does.
func next(expr, zone string, after time.Time) time.Time {
	at, err := time.LoadLocation(zone)
	if expr == "" || err != nil {
		return time.Time{}
	}
	t, err := gronx.NextTickAfter(expr, after.In(at), false)
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
