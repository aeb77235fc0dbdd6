package task

import (
	"strings"
	"time"
	_ "time/tzdata" // where the system has no time zones, as in the image of a container, or has others than the node before

	"github.com/adhocore/gronx"

	"github.com/bcc94042/instar/machines"
)

// anyYear is a time from which every expression that can come comes: a leap year is ahead of it.
var anyYear = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func checkCron(f *machines.Findings, expr, zone string) {
	if zone != "" && expr == "" {
		f.Add("timeZone", "is given without cron")
	}
	if _, err := time.LoadLocation(zone); err != nil || zone == "Local" {
		f.Add("timeZone", "%.64q is not a time zone such as Europe/Berlin", zone)
	}
	text(f, "cron", expr, 128)
	switch {
	case expr == "":
	case !gronx.IsValid(expr):
		f.Add("cron", "is not a cron expression such as 0 3 * * *")
	case next(expr, "", anyYear).IsZero():
		f.Add("cron", "never comes: no day is like that")
	}
}

// Comes reports whether a schedule that was checked comes after a time.
func Comes(expr, zone string, after time.Time) bool { return !next(expr, zone, after).IsZero() }

// next is when a schedule comes next after a time; the zero time when it never does. Where clocks are put forward, a time that they leave out comes as they are put; where they are put back, a
// time that they repeat comes once. What comes in every hour, or every few, goes on by the hours that pass.
func next(expr, zone string, after time.Time) time.Time {
	at, err := time.LoadLocation(zone)
	segments, err2 := gronx.Segments(expr)
	if expr == "" || err != nil || err2 != nil {
		return time.Time{}
	}
	t := after.In(at)
	if hours := segments[2]; strings.HasPrefix(hours, "*") || hours == "?" {
		t, err = passing(expr, t)
	} else {
		wall := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
		if wall, err = gronx.NextTickAfter(expr, wall, false); err == nil {
			t = instant(wall, at, after)
		}
	}
	if err != nil || !t.After(after) { // one that has been would come at once, again and again
		return time.Time{}
	}
	return t.UTC()
}

// passing is the next time by the hours that pass: it looks between two changes of the clocks, where none is left out and none comes twice.
func passing(expr string, t time.Time) (time.Time, error) {
	for range 256 { // changes of the clocks in all the years in which something may come
		_, offset := t.Zone()
		n, err := gronx.NextTickAfter(expr, t.In(time.FixedZone("", offset)), false)
		_, end := t.ZoneBounds()
		if err != nil || end.IsZero() || n.Before(end) {
			return n, err
		}
		t = end.Add(-time.Second)
		_, offset = end.Zone()
		if n, err = gronx.NextTickAfter(expr, t.In(time.FixedZone("", offset)), false); err != nil || n.Equal(end) {
			return n, err
		}
		t = end
	}
	return time.Time{}, nil
}

// instant is when the clocks of a place show a time: first, but after the given time if they show it twice; as they are put forward, if they leave it out.
func instant(wall time.Time, at *time.Location, after time.Time) time.Time {
	var shown time.Time
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := wall.Add(near).In(at).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second).In(at)
		if t.Hour() == wall.Hour() && t.Minute() == wall.Minute() && t.After(after) && (shown.IsZero() || t.Before(shown)) {
			shown = t
		}
	}
	if !shown.IsZero() {
		return shown
	}
	_, offset := wall.Add(-24 * time.Hour).In(at).Zone()
	put, _ := wall.Add(-time.Duration(offset) * time.Second).In(at).ZoneBounds()
	return put
}
