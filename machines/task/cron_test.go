package task

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// In New York clocks were put forward on 9 March 2025 at 2:00, and back on 2 November at 2:00; in Lord Howe they move by half an hour.
func TestSchedulesWhenClocksChange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ expr, zone, after, want string }{
		{"30 2 * * *", "America/New_York", "2025-03-08T12:00:00-05:00", "2025-03-09T03:00:00-04:00"}, // left out: as they are put
		{"30 2 * * *", "America/New_York", "2025-03-09T03:00:00-04:00", "2025-03-10T02:30:00-04:00"},
		{"0 3 * * *", "America/New_York", "2025-03-09T01:00:00-05:00", "2025-03-09T03:00:00-04:00"},
		{"*/5 * * * *", "America/New_York", "2025-03-09T01:55:00-05:00", "2025-03-09T03:00:00-04:00"},
		{"0 * * * *", "America/New_York", "2025-03-09T01:00:00-05:00", "2025-03-09T03:00:00-04:00"},
		{"30 1 * * *", "America/New_York", "2025-11-02T00:00:00-04:00", "2025-11-02T01:30:00-04:00"},
		{"30 1 * * *", "America/New_York", "2025-11-02T01:30:00-04:00", "2025-11-03T01:30:00-05:00"}, // once
		{"30 1 * * *", "America/New_York", "2025-11-02T01:10:00-05:00", "2025-11-02T01:30:00-05:00"}, // of a task that is made between
		{"0 * * * *", "America/New_York", "2025-11-02T01:00:00-04:00", "2025-11-02T01:00:00-05:00"},
		{"*/30 * * * *", "America/New_York", "2025-11-02T01:30:00-04:00", "2025-11-02T01:00:00-05:00"},
		{"0 3 * * *", "America/New_York", "2025-11-01T12:00:00-04:00", "2025-11-02T03:00:00-05:00"},
		{"15 2 * * *", "Australia/Lord_Howe", "2025-10-04T12:00:00+10:30", "2025-10-05T02:30:00+11:00"},
		{"45 1 * * *", "Australia/Lord_Howe", "2025-04-06T01:45:00+11:00", "2025-04-07T01:45:00+10:30"},
		{"0 0 29 2 *", "", "2025-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
		{"0 0 30 2 *", "", "2025-01-01T00:00:00Z", ""},
		{"0 0 0 1 1 * 2020", "", "2025-01-01T00:00:00Z", ""},
	} {
		after, err := time.Parse(time.RFC3339, c.after)
		require.NoError(t, err)
		var want time.Time
		if c.want != "" {
			want, err = time.Parse(time.RFC3339, c.want)
			require.NoError(t, err)
		}
		require.True(t, want.Equal(next(c.expr, c.zone, after)), "%s in %s after %s: %s, not %s", c.expr, c.zone, c.after, next(c.expr, c.zone, after), c.want)
	}
}

// Whatever the zone, a schedule rises, comes on each day that has its time or leaves it out, and comes once in each day.
func TestADailyScheduleComesOnEachDay(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago", "Africa/Cairo", "UTC"} {
		at, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for _, expr := range []string{"30 2 * * *", "30 1 * * *", "10 0 * * *", "59 23 * * *"} {
			now := time.Date(2024, 12, 31, 23, 59, 59, 0, at)
			for range 365 {
				then := next(expr, zone, now)
				require.True(t, then.After(now), "%s in %s after %s: %s", expr, zone, now, then)
				require.Equal(t, time.Date(now.Year(), now.Month(), now.Day()+1, 12, 0, 0, 0, at).YearDay(), then.In(at).YearDay(), "%s in %s after %s: %s", expr, zone, now, then)
				now = then.In(at)
			}
		}
	}
}

func TestAScheduleThatNeverComesIsRefused(t *testing.T) {
	t.Parallel()
	for expr, ok := range map[string]bool{"0 0 30 2 *": false, "0 0 31 4,6,9,11 *": false, "0 0 29 2 *": true, "@daily": true, "* * * * * *": true, "0 3 * *": false} {
		var f machines.Findings
		checkCron(&f, expr, "")
		require.Equal(t, ok, f.Refusal() == nil, "%s: %+v", expr, f.Refusal())
	}
}
