package task

import (
	"encoding/json"
	"fmt"
	"time"
	"unique"
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
	Blocked   string    `json:"blocked"`
	Cron      string    `json:"cron"`
	HasResult bool      `json:"-"`
}

// BriefOf reads one from the data of a stored value. Names that many tasks have are kept once.
func BriefOf(data []byte) (*Brief, error) {
	var v struct {
		Brief
		Result *struct{} `json:"result"`
	}
	if len(data) > 0 {
		if err := json.Unmarshal(data, &v); err != nil {
			return nil, fmt.Errorf("cannot read a stored task: %w", err)
		}
	}
	b := v.Brief
	for _, name := range []*string{&b.Type, &b.Pool, &b.Batch} {
		*name = unique.Make(*name).Value()
	}
	b.HasResult = v.Result != nil
	return &b, nil
}
