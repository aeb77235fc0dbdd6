package providers_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/simulated"
)

// A worker gives a task to the adapter and sends what it makes of it as a command.
func ExampleServing_Perform() {
	serving := providers.Serving{Gateway: &simulated.Gateway{}}
	task := machines.Task{
		Machine: "service", Namespace: "default", ID: "web", Effect: "apply", Attempt: "apply-1-1", Fence: 1,
		Data: []byte(`{"uid": "life", "generation": 1, "hash": "h", "spec": {"image": "nginx"}}`),
	}
	result := serving.Perform(context.Background(), task)
	fmt.Println(result.Failure.Code, result.Failure.Retryable)

	task.Data = []byte(`{"uid": "life", "generation": 1, "hash": "h", "spec": {"image": "sim:ok"}}`)
	result = serving.Perform(context.Background(), task)
	fmt.Printf("%+v %v\n", result.Data, result.Failure == nil)
	// Output:
	// invalid false
	// {UID:sim-1 Generation:1 ResourceVersion:1 Hash:h At:0001-01-01 00:00:00 +0000 UTC} true
}

// That there is nothing to delete is success: what was asked for is so.
func ExampleServing_Perform_delete() {
	serving := providers.Serving{Gateway: &simulated.Gateway{}}
	result := serving.Perform(context.Background(), machines.Task{
		Namespace: "default", ID: "web", Effect: providers.EffectDelete, Attempt: "delete-2-1", Fence: 2, Data: []byte(`{"uid": "life"}`),
	})
	fmt.Println(result.Failure == nil)
	// Output: true
}

// What a gateway's fault is to the engine: it is tried again only where that may help.
func ExampleFailure() {
	for _, code := range []providers.Code{providers.Unavailable, providers.Timeout, providers.Internal, providers.Invalid, providers.NotFound} {
		f := providers.Failure(providers.Errorf(code, "so it is"))
		fmt.Println(f.Code, f.Retryable)
	}
	// Output:
	// unavailable true
	// timeout true
	// internal true
	// invalid false
	// not-found false
}

// The next try waits at least as long as the gateway says, whatever the backoff of the effect is.
func ExampleLater() {
	f := providers.Failure(providers.Later(30*time.Second, "the registry of images asks for %d s", 30))
	fmt.Println(f.Code, f.Retryable, f.RetryAfter)
	// Output: unavailable true 30s
}

// An error that is none of this package is the gateway's own trouble; one of the context is a timeout.
func ExampleCodeOf() {
	fmt.Println(providers.CodeOf(errors.New("disk full")))
	fmt.Println(providers.CodeOf(fmt.Errorf("apply: %w", context.DeadlineExceeded)))
	fmt.Println(providers.CodeOf(fmt.Errorf("apply: %w", providers.Errorf(providers.Invalid, "no such image"))))
	fmt.Printf("%q\n", providers.CodeOf(nil))
	// Output:
	// internal
	// timeout
	// invalid
	// ""
}

// The contract of every gateway: a fence older than one that was seen is refused, and the same request changes nothing twice.
func ExampleGateway() {
	var g providers.Gateway = &simulated.Gateway{}
	req := providers.ApplyRequest{
		Request: providers.Request{Namespace: "default", Name: "web", UID: "life", Hash: "h", Attempt: "apply-5-1", Fence: 5},
		Spec:    service.Spec{Image: "sim:ok"},
	}
	first, _ := g.Apply(context.Background(), req)
	again, _ := g.Apply(context.Background(), req)
	fmt.Println(first.UID == again.UID, again.Generation)

	req.Fence, req.Attempt = 4, "apply-4-1" // a node that was superseded
	_, err := g.Apply(context.Background(), req)
	fmt.Println(providers.IsFenced(err))

	_, err = g.Observe(context.Background(), providers.ObserveRequest{Request: providers.Request{Namespace: "default", Name: "other"}})
	fmt.Println(providers.IsNotFound(err))
	// Output:
	// true 1
	// true
	// true
}

// A gateway asks it first: names become paths and labels of its world, and nothing is begun for a caller that has gone.
func ExampleRequest_Check() {
	req := providers.Request{Namespace: "default", Name: "../web"}
	fmt.Println(req.Check(context.Background()))
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	req.Name = "web"
	fmt.Println(providers.CodeOf(req.Check(gone)))
	// Output:
	// invalid: namespace "default" or name "../web" is no DNS label
	// timeout
}
