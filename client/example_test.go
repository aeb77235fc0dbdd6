package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/bcc94042/instar/client"
)

// A server that registers itself, and leaves without a failed request when it is told to end.
func ExampleDrainOnSignal() {
	registry := &client.Client{URLs: []string{"http://10.0.0.1:8080", "http://10.0.0.2:8080"}, Token: "secret"}
	lease, err := registry.Register(context.Background(), client.Registration{Service: "web", NodeAddress: "10.0.0.7:80", Version: "1.4.2"})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: ":80", Handler: lease.Handler(http.DefaultServeMux)} //nolint:gosec // an example
	go func() { _ = server.ListenAndServe() }()
	if err := client.DrainOnSignal(context.Background(), lease, server); err != nil {
		log.Fatal(err)
	}
}

// A client that calls some instance of web.
func ExampleClient_Transport() {
	registry := &client.Client{URLs: []string{"http://10.0.0.1:8080"}}
	transport := registry.Transport(nil)
	defer transport.Close()
	resp, err := (&http.Client{Transport: transport}).Get("http://web.instar/hello")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
}

// What is known of a service, and what changes.
func ExampleResolver_Subscribe() {
	registry := &client.Client{}
	web, err := registry.Resolve(context.Background(), "web", client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer web.Close()
	cancel := web.Subscribe(func(all []client.Endpoint) { fmt.Println(len(all), "instances, as of", web.Staleness(), "ago") })
	defer cancel()
}
