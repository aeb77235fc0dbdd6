package instance_test

import (
	"encoding/json"

	"pgregory.net/rapid"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/machinetest"
)

// input draws anything that may reach an instance: sensible and silly commands, evidence of several observers and of
// several generations, timers that fire in time and late, and text that is no body at all.
func (w *world) input() machines.Input {
	t := w.T
	switch rapid.SampledFrom([]string{"evidence", "evidence", "evidence", "evidence", "admission", "timer", "timer", "command", "flag", "register", "rare", "garbage"}).Draw(t, "kind") {
	case "evidence":
		name := rapid.SampledFrom([]string{
			instance.ReportPassed, instance.ReportPassed, instance.ReportPassed, instance.ReportFailed, instance.ReportFailed,
			instance.ReportMissed, instance.ReportConfirmed, instance.ReportGone,
		}).Draw(t, "evidence")
		return machinetest.Report(t, name, "", w.evidence())
	case "admission":
		b := instance.Admission{Generation: w.generation()}
		if rapid.Bool().Draw(t, "heard") {
			v := w.evidence()
			b.Passed = &v
		}
		return machinetest.Report(t, instance.ReportPersisted, "", b)
	case "timer":
		return w.Elapsed("deadline", "deadline", "maintenance")
	case "command":
		return w.command()
	case "flag":
		return w.flag()
	case "register":
		return w.register()
	case "rare":
		return w.rare()
	}
	return machines.Input{
		Command: rapid.SampledFrom([]string{"register", "health-check-passed", "elapsed", "pin", "persistence-success", "sing"}).Draw(t, "name"),
		Body:    json.RawMessage(rapid.SampledFrom([]string{`{"data":{"x":1}}`, `{"x":1}`, `{"data":[]}`}).Draw(t, "garbage")),
	}
}

func (w *world) evidence() instance.Evidence {
	t := w.T
	v := instance.Evidence{
		Observer:    rapid.SampledFrom([]string{"node-1", "node-1", "node-2", "node-3", "node-4", ""}).Draw(t, "observer"),
		Consecutive: rapid.IntRange(0, 4).Draw(t, "consecutive"), Status: 200, Generation: w.generation(),
		Observers: rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "observers"),
	}
	if rapid.IntRange(0, 4).Draw(t, "weighs") == 0 {
		weight := rapid.IntRange(0, 100).Draw(t, "weight")
		v.Weight = &weight
	}
	return v
}

// generation is none, the one of now, or another one.
func (w *world) generation() uint64 {
	return rapid.SampledFrom([]uint64{0, 0, w.E.Generation, w.E.Generation, w.E.Generation + 1, 1}).Draw(w.T, "generation")
}

func (w *world) register() machines.Input {
	t := w.T
	b := instance.RegisterBody{NodeAddress: "10.0.0.7:8080", Check: instance.Check{Type: rapid.SampledFrom([]string{"", "none", "ttl", "http", "http", "tcp"}).Draw(t, "type")}}
	if b.Check.Type != "ttl" {
		b.Check.Observers = rapid.SampledFrom([]int{0, 0, 1, 2, 3, 5}).Draw(t, "observers")
		b.Check.Agree = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "agree")
	}
	b.Policy = instance.Policy{
		Rise: rapid.IntRange(0, 3).Draw(t, "rise"), Fall: rapid.IntRange(0, 3).Draw(t, "fall"), MaxFailures: rapid.SampledFrom([]int{0, 0, 3}).Draw(t, "max"),
		Warmup:                  rapid.SampledFrom([]string{"", "", "30s", "0s"}).Draw(t, "warmup"),
		Aggression:              rapid.SampledFrom([]float64{0, 1, 2.5}).Draw(t, "aggression"),
		DeregisterCriticalAfter: rapid.SampledFrom([]string{"", "0s", "1m"}).Draw(t, "critical"),
		NoFlap:                  rapid.IntRange(0, 5).Draw(t, "no flap") == 0,
	}
	if rapid.Bool().Draw(t, "weighs") {
		weight := rapid.IntRange(0, 200).Draw(t, "weight")
		b.Weight = &weight
	}
	return command(t, instance.CommandRegister, b)
}

func (w *world) command() machines.Input {
	t := w.T
	switch name := rapid.SampledFrom([]string{"graceful-shutdown", "graceful-shutdown", "force-deregister", "cancel-drain", "cancel-drain"}).Draw(t, "command"); name {
	case "graceful-shutdown":
		return command(t, name, instance.ShutdownBody{Generation: w.generation(), Drain: rapid.SampledFrom([]string{"", "1s", "1m"}).Draw(t, "drain")})
	case "force-deregister":
		if rapid.IntRange(0, 2).Draw(t, "really") > 0 {
			return command(t, name, instance.ForceBody{Generation: w.E.Generation + 7})
		}
		return command(t, name, instance.ForceBody{Generation: w.generation()})
	default:
		return machines.Input{Command: name}
	}
}

func (w *world) flag() machines.Input {
	t := w.T
	switch name := rapid.SampledFrom([]string{"protect", "protect", "unprotect", "maintenance", "maintenance-expired", "pin", "label"}).Draw(t, "flag"); name {
	case "maintenance":
		b := instance.MaintenanceBody{Enabled: rapid.Bool().Draw(t, "enabled")}
		if b.Enabled {
			b.For = rapid.SampledFrom([]string{"", "10s", "5m"}).Draw(t, "for")
		}
		return command(t, name, b)
	case "pin":
		b := instance.PinBody{}
		if rapid.Bool().Draw(t, "pins") {
			weight := rapid.IntRange(0, 200).Draw(t, "weight")
			b.Weight = &weight
		}
		return command(t, name, b)
	case "label":
		return command(t, name, instance.LabelBody{Labels: map[string]string{"team": "web"}})
	default:
		return machinetest.Report(t, name, "", nil)
	}
}

func (w *world) rare() machines.Input {
	t := w.T
	switch name := rapid.SampledFrom([]string{"registration-failed", "flap-detected", "flap-calmed", "drain-complete"}).Draw(t, "rare"); name {
	case "registration-failed":
		return machinetest.Report(t, name, "", instance.RefusalReport{Reason: "quota", Generation: w.generation()})
	case "flap-detected", "flap-calmed":
		return machinetest.Report(t, name, "", instance.FlapReport{Score: rapid.Float64Range(0, 100).Draw(t, "score"), Generation: w.generation(), Last: rapid.IntRange(0, 9).Draw(t, "last") == 0})
	default:
		return machinetest.Report(t, name, "", instance.DrainReport{Reason: "seen", Generation: w.generation()})
	}
}

func command(t *rapid.T, name string, body any) machines.Input {
	return machines.Input{Command: name, Body: machinetest.JSON(t, body)}
}
