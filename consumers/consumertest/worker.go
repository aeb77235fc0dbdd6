package consumertest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/bcc94042/instar/machines"
)

// Worker performs the effects of things as their text says.
type Worker struct {
	Mu    sync.Mutex
	Tries map[string]int // by key
}

func (k *Worker) Perform(ctx context.Context, t machines.Task) machines.Result {
	k.Mu.Lock()
	k.Tries[t.Key()]++
	try := k.Tries[t.Key()]
	k.Mu.Unlock()
	var b WorkBody
	if err := json.Unmarshal(t.Data, &b); err != nil {
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: err.Error()}}
	}
	switch b.How {
	case "invalid":
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: "no such work"}}
	case "second":
		if try < 2 {
			return machines.Result{Failure: &machines.Failure{Code: "unavailable", Message: "not now", Retryable: true}}
		}
	case "never":
		return machines.Result{Failure: &machines.Failure{Code: "unavailable", Message: "not today", Retryable: true}}
	case "hang":
		<-context.WithoutCancel(ctx).Done() // for ever
	case "panic":
		panic("worker")
	case "large":
		return machines.Result{Data: WorkBody{How: strings.Repeat("x", 300<<10)}}
	case "wrong":
		return machines.Result{Data: map[string]any{"nobody": "asked for it"}}
	case "unwritable":
		return machines.Result{Data: make(chan int)}
	case "verbose":
		return machines.Result{Failure: &machines.Failure{Code: "invalid", Message: strings.Repeat("x", 2<<20)}}
	}
	return machines.Result{Data: WorkBody{How: "worked"}}
}

// NewWorker has tried nothing yet.
func NewWorker() *Worker { return &Worker{Tries: map[string]int{}} }
