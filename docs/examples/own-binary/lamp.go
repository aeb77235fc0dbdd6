package main

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// Data is what a lamp keeps.
type Data struct {
	Color string `json:"color,omitempty"`
	Watts int    `json:"watts,omitempty"`
}

// LightBody is the body of light.
type LightBody struct {
	Color string `json:"color" enum:"white,amber" doc:"Color of the light"`
}

// Lit is what the provider reports.
type Lit struct {
	Watts int `json:"watts"`
}

type step = machines.Tx[Data]

// Lamp is the lifecycle of a lamp.
var Lamp = machines.Define(machines.Definition[Data]{
	Name: "lamp", Plural: "lamps", Doc: "A lamp that is lit and put out.",
	States: []machines.State[Data]{
		{Name: "WARMING", Doc: "It is being lit.", Timeout: &machines.Timeout[Data]{Input: "too-late", After: func(*Data) time.Duration { return time.Minute }}},
		{Name: "SHINING", Doc: "It shines."},
		{Name: "BROKEN", Doc: "It cannot be lit.", Failed: true},
		{Name: "DARK", Doc: "It was put out.", Terminal: true},
	},
	Inputs: []machines.Command{
		{Name: "light", Doc: "Light it.", Body: LightBody{}, Birth: true},
		{Name: "put-out", Doc: "Put it out."},
		{Name: "lit", Doc: "The provider has lit it.", Body: Lit{}, Report: true},
		{Name: "light-failed", Doc: "The provider could not light it.", Body: machines.Failure{}, Report: true},
		{Name: "too-late", Doc: "It was not lit in time.", Report: true},
	},
	Effects: []machines.Effect[Data]{
		{Name: "glow", Doc: "Light the bulb.", Done: "lit", Failed: "light-failed", Payload: func(s *step) any { return LightBody{Color: s.Data.Color} }},
	},
	Events: []machines.EventType{
		{Name: "lamp.lit", Class: machines.ClassState, Doc: "It shines."},
		{Name: "lamp.failed", Class: machines.ClassState, Doc: "It is BROKEN, and why."},
		{Name: "lamp.put.out", Class: machines.ClassState, Doc: "It is DARK."},
	},
	Columns: []machines.Column{{Title: "COLOR", Path: "data.color"}, {Title: "WATTS", Path: "data.watts"}},
	Edges: []machines.Edge[Data]{
		{From: []string{machines.None, "DARK"}, On: "light", To: "WARMING", Do: begin, Effects: []string{"glow"}},
		{From: []string{"WARMING"}, On: "lit", To: "SHINING", Do: func(s *step) { s.Data.Watts = machines.Body[Lit](s).Watts }, Emit: []string{"lamp.lit"}},
		{From: []string{"WARMING"}, On: "light-failed", To: "BROKEN", Do: func(s *step) { s.Fail(machines.Body[machines.Failure](s)) }, Emit: []string{"lamp.failed"}},
		{From: []string{"WARMING"}, On: "too-late", To: "BROKEN", Do: late, Emit: []string{"lamp.failed"}},
		{From: []string{"SHINING", "BROKEN"}, On: "put-out", To: "DARK", Emit: []string{"lamp.put.out"}},
	},
})

func begin(s *step) {
	*s.Data = Data{Color: machines.Body[LightBody](s).Color}
	s.NextGeneration()
	s.Fail(nil)
}

func late(s *step) {
	s.Fail(&machines.Failure{Code: "too-late", Message: "it does not shine after a minute"})
}
