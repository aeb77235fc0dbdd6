package service

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/bcc94042/instar/machines"
)

// The read models: what lists and pages show of a service without reading its story.
var views = []machines.View{
	{
		Name: "status", Doc: "The current state, the last observation, and how earlier lives ended.", Project: projectStatus,
		Events: []string{EventCreationRequested, EventSnapshot, EventReady, EventFailed, EventDeleted},
	},
	{Name: "revisions", Doc: "All observed revisions, newest first.", Project: projectRevisions, Events: []string{EventRevisionCreated, EventRouteAligned, EventSnapshot}},
	{Name: "route", Doc: "The current and previous traffic targets.", Project: projectRoute, Events: []string{EventRouteAligned, EventDeleted}},
}

// StatusView is the value of the view status.
type StatusView struct {
	State      string     `json:"state"`
	Version    uint64     `json:"version"`
	Generation uint64     `json:"generation"`
	UpdatedAt  time.Time  `json:"updatedAt"`
	Snapshot   *Snapshot  `json:"snapshot,omitempty"`
	Error      string     `json:"error,omitempty"`
	History    []PastLife `json:"history,omitempty"` // newest first, the last 20
}

// PastLife is a life of the same name that has ended.
type PastLife struct {
	Generation uint64    `json:"generation"` // the last of that life
	EndedAt    time.Time `json:"endedAt"`
	Serving    string    `json:"serving,omitempty"` // the revision that served last
}

const (
	maxHistory   = 20
	maxRevisions = 50
	maxRoutes    = 20
)

func projectStatus(previous json.RawMessage, event string, e machines.Event, data json.RawMessage) (any, error) {
	v, err := before[StatusView](previous)
	if err != nil {
		return nil, err
	}
	v.State, v.Version, v.Generation, v.UpdatedAt = e.To, e.Version, e.Generation, e.Time
	switch event {
	case EventCreationRequested:
		v.Snapshot, v.Error = nil, ""
	case EventSnapshot:
		v.Snapshot = new(Snapshot)
		return v, json.Unmarshal(data, v.Snapshot)
	case EventReady:
		v.Error = ""
	case EventFailed:
		var d struct {
			Error machines.Failure `json:"error"`
		}
		err := json.Unmarshal(data, &d)
		v.Error = d.Error.Message
		return v, err
	case EventDeleted:
		past := PastLife{Generation: e.Generation, EndedAt: e.Time}
		if v.Snapshot != nil {
			past.Serving = v.Snapshot.Serving
		}
		v.Error = ""
		v.History = clipList(slices.Insert(v.History, 0, past), maxHistory)
	}
	return v, nil
}

// RevisionView is one item of the view revisions.
type RevisionView struct {
	ObservedRevision
	Generation uint64    `json:"generation"` // of the service when it was first seen
	SeenAt     time.Time `json:"seenAt"`
	Percent    int       `json:"percent"` // of the traffic
}

func projectRevisions(previous json.RawMessage, event string, e machines.Event, data json.RawMessage) (any, error) {
	list, err := before[[]RevisionView](previous)
	if err != nil {
		return nil, err
	}
	switch event {
	case EventRevisionCreated:
		var r ObservedRevision
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, err
		}
		*list = clipList(slices.Insert(*list, 0, RevisionView{ObservedRevision: r, Generation: e.Generation, SeenAt: e.Time}), maxRevisions)
	case EventSnapshot:
		var s Snapshot
		if err := json.Unmarshal(data, &s); err != nil {
			return nil, err
		}
		for i := range *list {
			if j := slices.IndexFunc(s.Revisions, func(r ObservedRevision) bool { return r.Name == (*list)[i].Name }); j >= 0 {
				(*list)[i].ObservedRevision = s.Revisions[j]
			}
			(*list)[i].Percent = percent(s.Traffic, (*list)[i].Name)
		}
	case EventRouteAligned:
		var r routeData
		if err := json.Unmarshal(data, &r); err != nil {
			return nil, err
		}
		for i := range *list {
			(*list)[i].Percent = percent(r.Traffic, (*list)[i].Name)
		}
	}
	return list, nil
}

func percent(traffic []Traffic, revision string) int {
	sum := 0
	for _, t := range traffic {
		if t.Revision == revision {
			sum += t.Percent
		}
	}
	return sum
}

// routeData is the data of RouteAligned.
type routeData struct {
	URL     string    `json:"url,omitempty"`
	Serving string    `json:"serving,omitempty"`
	Traffic []Traffic `json:"traffic,omitempty"`
}

// RouteView is the value of the view route.
type RouteView struct {
	routeData
	At     time.Time   `json:"at"`
	Before []RouteView `json:"before,omitempty"` // newest first, the last 20
}

func projectRoute(previous json.RawMessage, event string, e machines.Event, data json.RawMessage) (any, error) {
	v, err := before[RouteView](previous)
	if err != nil {
		return nil, err
	}
	history := v.Before
	if len(previous) > 0 {
		history = clipList(slices.Insert(history, 0, RouteView{routeData: v.routeData, At: v.At}), maxRoutes)
	}
	next := RouteView{At: e.Time, Before: history}
	if event == EventRouteAligned {
		if err := json.Unmarshal(data, &next.routeData); err != nil {
			return nil, err
		}
	}
	return next, nil
}

func before[T any](previous json.RawMessage) (*T, error) {
	v := new(T)
	if len(previous) == 0 {
		return v, nil
	}
	if err := json.Unmarshal(previous, v); err != nil {
		return nil, fmt.Errorf("service: cannot read the view as it was: %w", err)
	}
	return v, nil
}

func clipList[T any](list []T, n int) []T { return list[:min(len(list), n)] }
