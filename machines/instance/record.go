package instance

import (
	"encoding/json"
	"fmt"
	"time"
)

// Record is a stored instance as those read it who look for instances or after them: without what only its owner needs.
type Record struct {
	Namespace, Service, ID string
	State                  string
	Since                  time.Time // when State was entered
	Generation, Version    uint64
	Data                   Known
}

// Known is their part of [Data], whose members have the same names.
type Known struct {
	NodeAddress string
	Payload     map[string]string
	Zone        string
	Version     string
	Tags        []string
	Weight      int
	*Terms      // never nil; those that were registered alike may share them

	Retries     int
	Suspicion   *Suspicion
	Flap        *Flap
	Maintenance *Maintenance
	Pinned      *int
	Protected   bool

	WarmSince time.Time
	Overdue   time.Time
	Failing   []string
	Passing   []string
	Reported  *int
}

// Known is what others need to know of it, with a copy of its terms.
func (d *Data) Known() Known {
	terms := d.Terms // for itself: the rest of d may go
	return Known{
		NodeAddress: d.NodeAddress, Payload: d.Payload, Zone: d.Zone, Version: d.Version, Tags: d.Tags, Weight: d.Weight, Terms: &terms,
		Retries: d.Retries, Suspicion: d.Suspicion, Flap: d.Flap, Maintenance: d.Maintenance, Pinned: d.Pinned, Protected: d.Protected,
		WarmSince: d.WarmSince, Overdue: d.Overdue, Failing: d.Failing, Passing: d.Passing, Reported: d.Reported,
	}
}

// Decode reads a stored value. It refuses one that is not an instance's; whether its schema and its state are known is
// for the engine to say.
func Decode(value []byte) (*Record, error) {
	var stored struct {
		Machine    string    `json:"machine"`
		Namespace  string    `json:"namespace"`
		Service    string    `json:"parent"`
		ID         string    `json:"id"`
		State      string    `json:"state"`
		Since      time.Time `json:"since"`
		Generation uint64    `json:"generation"`
		Version    uint64    `json:"version"`
		Data       Data      `json:"data"`
	}
	if err := json.Unmarshal(value, &stored); err != nil {
		return nil, fmt.Errorf("instance: cannot read a stored instance: %w", err)
	}
	s := &stored
	if s.Machine != "instance" || s.Namespace == "" || s.Service == "" || s.ID == "" || s.State == "" {
		return nil, fmt.Errorf("instance: stored value is a %q named %q, not an instance", s.Machine, s.Namespace+"."+s.Service+"."+s.ID)
	}
	return &Record{
		Namespace: s.Namespace, Service: s.Service, ID: s.ID, State: s.State, Since: s.Since, Generation: s.Generation, Version: s.Version, Data: s.Data.Known(),
	}, nil
}
