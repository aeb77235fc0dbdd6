package service

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// fold plays events into a view as the consumer does: through JSON, one after the other.
func fold(t *testing.T, name string, events ...struct {
	name string
	e    machines.Event
	data any
},
) string {
	t.Helper()
	var project machines.Project
	for _, v := range Machine.Views {
		if v.Name == name {
			project = v.Project
		}
	}
	require.NotNil(t, project)
	var value json.RawMessage
	for _, ev := range events {
		data, err := json.Marshal(ev.data)
		require.NoError(t, err)
		next, err := project(value, ev.name, ev.e, data)
		require.NoError(t, err)
		value, err = json.Marshal(next)
		require.NoError(t, err)
	}
	return string(value)
}

type told = struct {
	name string
	e    machines.Event
	data any
}

func at(version uint64, to string) machines.Event {
	return machines.Event{To: to, Version: version, Generation: 1, Time: time.Date(2026, 1, 26, 17, 0, int(version), 0, time.UTC)}
}

func TestStatusKeepsEndedLives(t *testing.T) {
	t.Parallel()
	got := fold(t, "status",
		told{EventSnapshot, at(3, Creating), Snapshot{Exists: true, Serving: "web-00001"}},
		told{EventFailed, at(4, Failed), map[string]any{"error": machines.Failure{Code: "x", Message: "it broke"}}},
		told{EventDeleted, at(6, Deleted), nil},
		told{EventCreationRequested, at(7, Creating), nil},
	)
	require.JSONEq(t, `{"state":"CREATING","version":7,"generation":1,"updatedAt":"2026-01-26T17:00:07Z",
		"history":[{"generation":1,"endedAt":"2026-01-26T17:00:06Z","serving":"web-00001"}]}`, got)
}

func TestRevisionsCarryTheirTraffic(t *testing.T) {
	t.Parallel()
	got := fold(t, "revisions",
		told{EventRevisionCreated, at(2, Creating), ObservedRevision{Name: "web-00001"}},
		told{EventRevisionCreated, at(5, Updating), ObservedRevision{Name: "web-00002"}},
		told{EventRouteAligned, at(6, Ready), routeData{URL: "http://x", Traffic: []Traffic{{Revision: "web-00002", Percent: 100}}}},
		told{EventSnapshot, at(7, Ready), Snapshot{Revisions: []ObservedRevision{{Name: "web-00002", Ready: machines.True}}, Traffic: []Traffic{{Revision: "web-00002", Percent: 100}}}},
	)
	require.JSONEq(t, `[{"name":"web-00002","ready":"True","generation":1,"seenAt":"2026-01-26T17:00:05Z","percent":100},
		{"name":"web-00001","generation":1,"seenAt":"2026-01-26T17:00:02Z","percent":0}]`, got)
}

func TestRouteRemembersWhereItWent(t *testing.T) {
	t.Parallel()
	got := fold(t, "route",
		told{EventRouteAligned, at(2, Creating), routeData{URL: "http://a"}},
		told{EventDeleted, at(5, Deleted), nil},
	)
	require.JSONEq(t, `{"at":"2026-01-26T17:00:05Z","before":[{"url":"http://a","at":"2026-01-26T17:00:02Z"}]}`, got)
}
