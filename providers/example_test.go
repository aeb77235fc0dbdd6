package providers_test

import (
	"context"
	"fmt"

	"github.com/bcc94042/instar/machines"
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
