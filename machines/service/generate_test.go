package service_test

import (
	"encoding/json"
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/machinetest"
	"github.com/bcc94042/instar/machines/service"
)

// input draws anything that may reach a service: sensible and silly commands, answers of the attempt under way and of
// others, timers that fire in time and late, and text that is no body at all.
func (w *world) input() machines.Input {
	t := w.T
	switch rapid.SampledFrom([]string{"command", "command", "observed", "observed", "observed", "answer", "answer", "failed", "timer", "garbage"}).Draw(t, "kind") {
	case "command":
		return w.command()
	case "observed":
		return machinetest.Report(t, "observed", w.attempt(service.EffectObserve), w.observation())
	case "answer":
		return w.answer()
	case "failed":
		fx := rapid.SampledFrom([]string{"apply", "apply", "delete", "observe"}).Draw(t, "effect")
		body := machines.EffectFailed{Effect: fx, Attempt: w.E.Effects[fx].ID, Failure: w.failure()}
		if rapid.IntRange(0, 4).Draw(t, "late") == 0 {
			body.Attempt = "apply-1-1"
		}
		return machines.Input{Command: machines.CommandFailed, Body: machinetest.JSON(t, body)}
	case "timer":
		return w.Elapsed(append(slices.Sorted(maps.Keys(w.E.Timers)), "deadline", "retry-apply", "no such timer")...)
	}
	return w.garbage()
}

func (w *world) command() machines.Input {
	t := w.T
	name := rapid.SampledFrom([]string{"create", "update", "update", "delete", "refresh", "rollback", "label", "purge"}).Draw(t, "command")
	spec := service.Spec{Image: rapid.SampledFrom([]string{"a:1", "b:2", "c:3", ""}).Draw(t, "image"), ForceReplace: rapid.IntRange(0, 3).Draw(t, "force") == 0}
	var policy *service.Policy
	if rapid.Bool().Draw(t, "with policy") {
		policy = &service.Policy{
			FailureThreshold: rapid.IntRange(-1, 3).Draw(t, "failures"), DegradeThreshold: rapid.IntRange(0, 3).Draw(t, "degrades"),
			Drift: rapid.SampledFrom([]string{"", "report", "reapply"}).Draw(t, "drift"),
		}
	}
	labels := map[string]string{}
	if rapid.Bool().Draw(t, "with labels") {
		labels["team"] = rapid.SampledFrom([]string{"core", "web", "not a value"}).Draw(t, "label")
	}
	var body any
	switch name {
	case "create":
		body = service.CreateBody{Spec: spec, Policy: policy, Labels: labels}
	case "update":
		body = service.UpdateBody{Spec: spec, Policy: policy, Labels: labels, Supersede: rapid.Bool().Draw(t, "supersede")}
	case "label":
		body = service.LabelBody{Labels: labels}
	case "purge":
		body = service.PurgeBody{Force: rapid.IntRange(0, 3).Draw(t, "really") == 0}
	default:
		return machines.Input{Command: name}
	}
	return machines.Input{Command: name, Body: machinetest.JSON(t, body)}
}

func (w *world) answer() machines.Input {
	t := w.T
	switch name := rapid.SampledFrom([]string{"applied", "applied", "apply-failed", "delete-accepted", "delete-failed", "deleted-observed", "observe-failed"}).Draw(t, "answer"); name {
	case "applied":
		return machinetest.Report(t, name, w.attempt(service.EffectApply), service.Applied{UID: w.uid(), Generation: w.generation("applied"), Hash: "what it says"})
	case "delete-accepted":
		return machinetest.Report(t, name, w.attempt(service.EffectDelete), nil)
	case "deleted-observed":
		return machinetest.Report(t, name, "", nil)
	default:
		return machinetest.Report(t, name, "", w.failure())
	}
}

// attempt is the one under way, or none, or one of long ago.
func (w *world) attempt(effect string) string {
	if rapid.IntRange(0, 5).Draw(w.T, "stale") == 0 {
		return effect + "-1-1"
	}
	return w.E.Effects[effect].ID
}

func (w *world) garbage() machines.Input {
	var names []string
	for _, c := range service.Machine.Inputs {
		names = append(names, c.Name)
	}
	names = append(names, machines.CommandElapsed, machines.CommandFailed, "", "no such command", "*")
	body := rapid.SampledFrom([]string{"", "{", "null", "[]", "7", `"text"`, "{}", `{"spec":{"image":1}}`, `{"a":1}{}`, `{"data":{"ready":"Perhaps"}}`, `{"data":{"generation":1e99}}`, "\x00\xff"}).Draw(w.T, "body")
	return machines.Input{Command: rapid.SampledFrom(names).Draw(w.T, "any command"), Body: json.RawMessage(body)}
}

func (w *world) observation() service.Observation {
	t, d := w.T, w.E.Data.(*service.Data)
	gen := w.generation("object")
	o := service.Observation{Snapshot: service.Snapshot{
		Exists: rapid.IntRange(0, 7).Draw(t, "exists") != 0, UID: w.uid(), Generation: gen,
		ObservedGeneration: gen - rapid.SampledFrom([]int64{0, 0, 0, 1}).Draw(t, "behind"),
		SpecHash:           rapid.SampledFrom([]string{d.SpecHash, d.SpecHash, d.SpecHash, "other", ""}).Draw(t, "hash"),
		Ready:              rapid.SampledFrom([]machines.Status{machines.True, machines.True, machines.False, machines.False, machines.Unknown, ""}).Draw(t, "ready"),
		Reason:             rapid.SampledFrom([]string{"", "NotYet", service.ReasonRevisionFailed, "ExitCode1"}).Draw(t, "reason"),
		Route:              rapid.SampledFrom([]machines.Status{"", "", "", machines.True, machines.False}).Draw(t, "route"),
		Serving:            rapid.SampledFrom([]string{"", "web-1", "web-2"}).Draw(t, "serving"),
		LatestCreated:      rapid.SampledFrom([]string{"", "web-1", "web-2"}).Draw(t, "created"),
	}}
	if rapid.IntRange(0, 5).Draw(t, "fields") == 0 {
		o.Fields = map[string]service.FieldDiff{"replicas": {Want: "1", Got: rapid.SampledFrom([]string{"2", "3"}).Draw(t, "got")}}
	}
	if rapid.Bool().Draw(t, "dated") {
		o.At = w.Now
	}
	return o
}

func (w *world) uid() string {
	return rapid.SampledFrom([]string{"k1", "k1", "k1", "k2", ""}).Draw(w.T, "uid")
}

func (w *world) generation(of string) int64 { return rapid.Int64Range(1, 3).Draw(w.T, of) }

func (w *world) failure() machines.Failure {
	return machines.Failure{
		Code:      rapid.SampledFrom([]string{"unavailable", "invalid", ""}).Draw(w.T, "code"),
		Message:   "something",
		Retryable: rapid.Bool().Draw(w.T, "retryable"),
	}
}
