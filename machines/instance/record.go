package instance

import (
	"encoding/json"
	"fmt"
	"time"
)

// Record is a stored instance as readers keep it: all but the bookkeeping of the engine. It is shared by them and must
// not be changed.
type Record struct {
	Namespace  string    `json:"namespace"`
	Service    string    `json:"parent"`
	ID         string    `json:"id"`
	State      string    `json:"state"`
	Since      time.Time `json:"since"` // when State was entered
	Generation uint64    `json:"generation"`
	Version    uint64    `json:"version"`
	Data       Data      `json:"data"`
}

// Decode reads a stored value. It refuses one that is not an instance's; whether its schema and its state are known is
// for the engine to say.
func Decode(value []byte) (*Record, error) {
	var stored struct {
		Machine string `json:"machine"`
		Record
	}
	if err := json.Unmarshal(value, &stored); err != nil {
		return nil, fmt.Errorf("instance: cannot read a stored instance: %w", err)
	}
	if r := &stored.Record; stored.Machine != "instance" || r.Namespace == "" || r.Service == "" || r.ID == "" || r.State == "" {
		return nil, fmt.Errorf("instance: stored value is a %q named %q, not an instance", stored.Machine, r.Namespace+"."+r.Service+"."+r.ID)
	}
	r := stored.Record // without what only the check needed
	return &r, nil
}
