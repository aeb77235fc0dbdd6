// Command discovery-client calls a service by its name, again and again, and tells which instances there are:
//
//	go run ./docs/examples/discovery-client -registry http://127.0.0.1:8080 -service web
package main

import (
	"context"
	"flag"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/bcc94042/instar/client"
)

func main() {
	registry := flag.String("registry", "http://127.0.0.1:8080", "URL of the registry")
	service := flag.String("service", "web", "service to call")
	every := flag.Duration("every", time.Second, "time between calls")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, &client.Client{URLs: []string{*registry}, Token: os.Getenv("INSTAR_TOKEN")}, *service, *every); err != nil {
		log.Print(err)
	}
}

func run(ctx context.Context, registry *client.Client, service string, every time.Duration) error {
	transport := registry.Transport(nil)
	defer transport.Close()
	found, err := transport.Resolver(ctx, service)
	if err != nil {
		return err
	}
	defer found.Subscribe(func(all []client.Endpoint) { log.Printf("%s has %d instances", service, len(all)) })()
	caller := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if text, err := call(ctx, caller, "http://"+service+".instar/"); err != nil {
			log.Printf("failed: %v (the registry was heard %s ago)", err, found.Staleness())
		} else {
			log.Print(text)
		}
	}
}

func call(ctx context.Context, caller *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := caller.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	return string(raw), err
}
