package main

import (
	"context"
	"encoding/json"

	"github.com/bcc94042/instar/machines"
)

// Bulbs light lamps.
type Bulbs struct{}

// Perform does one task. It may be called twice for the same one: a bulb that is lit stays lit.
func (Bulbs) Perform(_ context.Context, task machines.Task) machines.Result {
	var body LightBody
	if err := json.Unmarshal(task.Data, &body); err != nil {
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: err.Error()}}
	}
	return machines.Result{Data: Lit{Watts: map[string]int{"white": 9, "amber": 7}[body.Color]}}
}
