package providers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
)

// The effects that [Serving] performs.
const (
	EffectApply   = "apply"
	EffectObserve = "observe"
	EffectDelete  = "delete"
	EffectPurge   = "purge"
)

// The reports that [Serving.Look] makes of what it saw.
const (
	ReportObserved = "observed"
	ReportDeleted  = "deleted-observed"
)

// Serving performs the effects of services, and looks at them, through a gateway.
type Serving struct {
	Gateway    Gateway
	ReadyStale time.Duration    // how long a stable READY is believed without looking; 0 always looks
	Now        func() time.Time // time.Now when nil
	Log        *slog.Logger     // gets the stacks of panics; may be nil
}

// Perform does one task. It never panics and never fails without a [machines.Failure]; that there was nothing to
// delete is success, and that there is nothing to observe is an observation.
func (s Serving) Perform(ctx context.Context, task machines.Task) (result machines.Result) {
	defer func() {
		if p := recover(); p != nil {
			result = machines.Result{Failure: s.panicked(p)}
		}
	}()
	data, err := s.perform(ctx, &task)
	if err != nil {
		return machines.Result{Failure: Failure(err)}
	}
	return machines.Result{Data: data}
}

func (s Serving) perform(ctx context.Context, task *machines.Task) (any, error) {
	req := Request{Namespace: task.Namespace, Name: task.ID, Attempt: task.Attempt, Fence: task.Fence}
	switch task.Effect {
	case EffectApply:
		body, err := decode[service.ApplyTask](task)
		if err != nil {
			return nil, err
		}
		if body.Spec == nil {
			return nil, Errorf(Invalid, "task %s has no spec", task.Attempt)
		}
		req.UID, req.Hash = body.UID, body.Hash
		return s.Gateway.Apply(ctx, ApplyRequest{Request: req, Generation: body.Generation, Spec: *body.Spec})
	case EffectObserve:
		body, err := decode[service.ObserveTask](task)
		if err != nil {
			return nil, err
		}
		req.UID, req.Hash = body.UID, body.Hash
		return s.observe(ctx, req)
	case EffectDelete, EffectPurge:
		body, err := decode[service.DeleteTask](task)
		if err != nil {
			return nil, err
		}
		req.UID = body.UID
		err = s.Gateway.Delete(ctx, DeleteRequest{Request: req, Force: task.Effect == EffectPurge})
		if IsNotFound(err) {
			err = nil
		}
		return struct{}{}, err
	}
	return nil, Errorf(Invalid, "no gateway performs the effect %q", task.Effect)
}

// Watch passes on what the gateway notices; with a gateway that notices nothing it only waits for ctx to end.
func (s Serving) Watch(ctx context.Context, notify func(key string)) error {
	if n, ok := s.Gateway.(Notifier); ok {
		return n.Watch(ctx, notify)
	}
	<-ctx.Done()
	return ctx.Err()
}

// observe makes an observation of NotFound, too, and lets no wild text through.
func (s Serving) observe(ctx context.Context, req Request) (service.Observation, error) {
	o, err := s.Gateway.Observe(ctx, ObserveRequest{Request: req})
	if IsNotFound(err) {
		return service.Observation{At: s.now()}, nil
	}
	if err != nil {
		return service.Observation{}, err
	}
	if o.At.IsZero() {
		o.At = s.now()
	}
	o.Reason, o.Message = clean(o.Reason), clean(o.Message)
	for i := range o.Conditions {
		o.Conditions[i].Message = clean(o.Conditions[i].Message)
	}
	return o, nil
}

func (s Serving) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

func decode[T any](task *machines.Task) (*T, error) {
	body := new(T)
	if err := json.Unmarshal(task.Data, body); err != nil {
		return nil, Errorf(Invalid, "cannot read the task %s: %v", task.Attempt, err)
	}
	return body, nil
}

// panicked is the failure of a gateway with a mistake in its code. The stack goes to the log only.
func (s Serving) panicked(p any) *machines.Failure {
	panics.Caught(s.Log, "gateway", p)
	return &machines.Failure{Code: string(Panicked), Message: clean(fmt.Sprint(p)), Retryable: true}
}
