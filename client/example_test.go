package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/bcc94042/instar/client"
)

// exampleRegistry is a registry in this process, and a client of it. Over ends both.
func exampleRegistry() (f *registry, c *client.Client, over func()) {
	f = emptyRegistry()
	f.server = httptest.NewServer(f.handler())
	c = &client.Client{URLs: []string{f.server.URL}}
	return f, c, func() {
		c.CloseIdleConnections()
		f.stop()
	}
}

// exampleResolver follows the service web of a registry with these instances, by id and weight.
func exampleResolver(opts client.Options, weights map[string]int) (web *client.Resolver, f *registry, over func()) {
	f, c, stop := exampleRegistry()
	for id, weight := range weights {
		f.put("web", id, "10.0.0.1:80", weight)
	}
	web, err := c.Resolve(context.Background(), "web", opts)
	if err != nil {
		log.Fatal(err)
	}
	return web, f, func() {
		web.Close()
		stop()
	}
}

// A server that registers itself, and leaves without a failed request when it is told to end.
func ExampleDrainOnSignal() {
	registry := &client.Client{URLs: []string{"http://10.0.0.1:8080", "http://10.0.0.2:8080"}, Token: "secret"}
	lease, err := registry.Register(context.Background(), client.Registration{Service: "web", NodeAddress: "10.0.0.7:80", Version: "1.4.2"})
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: ":80", Handler: lease.Handler(http.DefaultServeMux)} // an example
	go func() { _ = server.ListenAndServe() }()
	if err := client.DrainOnSignal(context.Background(), lease, server); err != nil {
		log.Fatal(err)
	}
}

// The lease keeps the instance alive until it is drained or closed.
func ExampleClient_Register() {
	_, registry, over := exampleRegistry()
	defer over()
	lease, err := registry.Register(context.Background(), client.Registration{Service: "web", NodeAddress: "10.0.0.7:80"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(lease.Service, lease.Generation(), lease.Err())
	fmt.Println(lease.Drain(context.Background()))
	<-lease.Done()
	// Output:
	// web 1 <nil>
	// <nil>
}

// What is left out has the registry's default; a weight of 0 is not left out.
func ExampleRegistration() {
	f, registry, over := exampleRegistry()
	defer over()
	none := 0
	lease, err := registry.Register(context.Background(), client.Registration{
		Service: "web", NodeAddress: "10.0.0.7:80", InstanceID: "w1", Weight: &none,
		Check: client.Check{Type: client.CheckHTTP, Path: "/healthz", Interval: 2 * time.Second},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Close()
	sent := look(f, func() map[string]any { return f.instances["web/w1"].body })
	fmt.Println(sent["check"], sent["weight"], sent["policy"])
	// Output: map[interval:2s path:/healthz type:http] 0 <nil>
}

// The second process with the same address is the same instance: the first one's lease ends with its next heartbeat.
func ExampleLease_Err() {
	_, registry, over := exampleRegistry()
	defer over()
	reg := client.Registration{Service: "web", NodeAddress: "10.0.0.7:80", Check: client.Check{TTL: 150 * time.Millisecond}}
	first, _ := registry.Register(context.Background(), reg)
	second, _ := registry.Register(context.Background(), reg)
	defer second.Close()
	<-first.Done() // a heartbeat is sent every third of the TTL
	fmt.Println(errors.Is(first.Err(), client.ErrReplaced), second.Generation())
	// Output: true 2
}

// A refusal of the registry is told apart from one that did not answer.
func ExampleError() {
	_, registry, over := exampleRegistry()
	defer over()
	_, err := registry.Register(context.Background(), client.Registration{Service: "web"}) // without an address
	var refused *client.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Status, refused.Code)
	}
	// Output: 400 incomplete
}

// Another namespace of the same registry, over the same connections.
func ExampleClient_In() {
	shop := (&client.Client{URLs: []string{"http://127.0.0.1:8080"}}).In("shop")
	fmt.Println(shop.Namespace, shop.URLs)
	// Output: shop [http://127.0.0.1:8080]
}

// Without a registry, and without anything in CacheDir, there is no first list: the context bounds the wait for it.
func ExampleClient_Resolve() {
	registry := &client.Client{URLs: []string{"http://127.0.0.1:1"}} // nobody there
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err := registry.Resolve(ctx, "web", client.Options{Zone: "eu-1", Balance: client.LeastInFlight})
	fmt.Println(errors.Is(err, context.DeadlineExceeded))
	// Output: true
}

// Instances are chosen in turn, by weight, as evenly as weights allow. Done says how the call went.
func ExampleResolver_Pick() {
	web, _, over := exampleResolver(client.Options{}, map[string]int{"a": 300, "b": 100})
	defer over()
	for range 8 {
		choice, err := web.Pick()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(choice.InstanceID, " ")
		choice.Done(client.OK)
	}
	// Output: a a b a a a b a
}

// Where nothing may be called, that is an error of its own.
func ExampleResolver_PickFrom() {
	web, _, over := exampleResolver(client.Options{}, map[string]int{"a": 100, "b": 100})
	defer over()
	_, err := web.PickFrom(func(id string) bool { return id == "c" })
	fmt.Println(errors.Is(err, client.ErrNoEndpoints))
	choice, err := web.Pick("a") // b, because a was tried
	fmt.Println(choice.InstanceID, err)
	choice.Done(client.Unknown)
	choice, err = web.Pick("a", "b") // some instance is better than none
	fmt.Println(choice != nil, err)
	choice.Done(client.Unknown)
	// Output:
	// true
	// b <nil>
	// true <nil>
}

// Who refuses a connection is left out for 30 s, and longer each time; half of the instances at most.
func ExampleChoice_Done() {
	web, _, over := exampleResolver(client.Options{}, map[string]int{"a": 100, "b": 100})
	defer over()
	choice, _ := web.Pick()
	fmt.Println(choice.InstanceID)
	choice.Done(client.Refused)
	for range 3 {
		choice, _ = web.Pick()
		fmt.Println(choice.InstanceID)
		choice.Done(client.OK)
	}
	// Output:
	// a
	// b
	// b
	// b
}

// While a registry is connected that is up to date, what is known is not stale. The list is the caller's own.
func ExampleResolver_Endpoints() {
	web, _, over := exampleResolver(client.Options{}, map[string]int{"b": 100, "a": 50})
	defer over()
	for _, e := range web.Endpoints() {
		fmt.Println(e.InstanceID, e.NodeAddress, e.Weight)
	}
	fmt.Println(web.Staleness(), web.Protected())
	// Output:
	// a 10.0.0.1:80 50
	// b 10.0.0.1:80 100
	// 0s false
}

// The first call is made before Subscribe returns, with what is known; then one after every change. The same list may come twice.
func ExampleResolver_Subscribe() {
	web, f, over := exampleResolver(client.Options{}, map[string]int{"a": 100})
	defer over()
	told := make(chan int, 10)
	cancel := web.Subscribe(func(all []client.Endpoint) { told <- len(all) })
	defer cancel()
	fmt.Println(<-told)
	f.put("web", "b", "10.0.0.2:80", 100) // somebody registers
	for n := range told {
		if n > 1 {
			fmt.Println(n)
			break
		}
	}
	// Output:
	// 1
	// 2
}

// A client that calls some instance of web. One that cannot be connected to is passed over.
func ExampleClient_Transport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello from "+r.Host) }))
	defer server.Close()
	f, registry, over := exampleRegistry()
	defer over()
	f.put("web", "gone", "127.0.0.1:1", 100) // nobody there
	f.put("web", "here", server.Listener.Addr().String(), 100)

	transport := registry.Transport(nil)
	defer transport.Close()
	resp, err := (&http.Client{Transport: transport}).Get("http://web.instar/hello")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body))
	// Output: 200 hello from web.instar
}

// A zone's instances are called as long as there are any; the others are known nonetheless.
func ExampleOptions() {
	f, registry, over := exampleRegistry()
	defer over()
	for _, zone := range []string{"eu-1", "eu-2"} {
		f.put("web", zone, "10.0.0.1:80", 100)
		f.instances["web/"+zone].Zone = zone
	}
	web, err := registry.Resolve(context.Background(), "web", client.Options{Zone: "eu-2"})
	if err != nil {
		log.Fatal(err)
	}
	defer web.Close()
	for range 2 {
		choice, _ := web.Pick()
		fmt.Println(choice.InstanceID, "of", len(web.Endpoints()))
		choice.Done(client.OK)
	}
	// Output:
	// eu-2 of 2
	// eu-2 of 2
}
