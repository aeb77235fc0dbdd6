package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
)

// A server gains a machine as soon as it serves, and takes its commands from then on.
func ExampleHost_AddMachine() {
	dir, err := os.MkdirTemp("", "instar")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	cfg := config.Defaults(config.Dev)
	cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Log.Level = dir, "127.0.0.1:0", "", "error"
	gate := machines.Define(machines.Definition[struct{}]{
		Name: "gate", Plural: "gates", Doc: "It is opened once.", States: []machines.State[struct{}]{{Name: "OPEN", Terminal: true}},
		Inputs: []machines.Command{{Name: "open", Doc: "Open it.", Birth: true}},
		Edges:  []machines.Edge[struct{}]{{From: []string{machines.None}, On: "open", To: "OPEN"}},
	})
	err = server.Run(ctx, cfg, server.Options{
		Machines: []*machines.Machine{door()},
		Open: func(_ context.Context, host *server.Host) error {
			host.Serving(func(ctx context.Context, url string) error {
				defer stop()
				if err := host.AddMachine(ctx, gate, server.Provider{}); err != nil {
					return err
				}
				res, err := http.Post(url+"/v1/gates/north/open", "application/json", nil)
				if err != nil {
					return err
				}
				defer res.Body.Close()
				_, err = io.Copy(io.Discard, res.Body)
				fmt.Println(res.Status, host.Deps.Machines.Get("gate").Doc)
				return err
			})
			return nil
		},
	})
	fmt.Println(err)
	// Output:
	// 200 OK It is opened once.
	// <nil>
}
