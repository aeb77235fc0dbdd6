package task

import (
	"encoding/json"
	"fmt"
	"time"
)

// Brief is what schedulers and counts need of a stored task, without the rest.
type Brief struct {
	Type      string    `json:"type"`
	Pool      string    `json:"pool"`
	Priority  int       `json:"priority"`
	SortOrder int       `json:"sortOrder"`
	Optional  bool      `json:"optional"`
	RunAfter  []string  `json:"runAfter"`
	UniqueKey string    `json:"uniqueKey"`
	Enqueue   uint64    `json:"enqueue"`
	Starts    uint64    `json:"starts"`
	Attempt   int       `json:"attempt"`
	AttemptID string    `json:"attemptId"`
	Queued    time.Time `json:"queuedAt"`
	NotBefore time.Time `json:"notBefore"`
	StartedAt time.Time `json:"startedAt"`
	Batch     string    `json:"batch"`
	StopBatch bool      `json:"stopBatch"`
	HasResult bool      `json:"-"`
}

// ReadBrief reads one from a stored value of this schema.
func ReadBrief(value []byte) (*Brief, error) {
	var v struct {
		Data struct {
			Brief
			Result *struct{} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(value, &v); err != nil {
		return nil, fmt.Errorf("cannot read a stored task: %w", err)
	}
	b := v.Data.Brief
	b.HasResult = v.Data.Result != nil
	return &b, nil
}
