package grpcresolver_test

import (
	"fmt"
	"log"
	"net/url"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"

	"github.com/bcc94042/instar/client"
	"github.com/bcc94042/instar/client/grpcresolver"
)

// Calls on the connection go to the instances of web in the namespace shop. It is made at once; the first call waits for a list.
func ExampleBuilder() {
	builder := &grpcresolver.Builder{Client: &client.Client{URLs: []string{"http://127.0.0.1:8080"}}, Options: client.Options{Zone: "eu-1"}}
	conn, err := grpc.NewClient("instar:///web.shop", grpc.WithResolvers(builder), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	fmt.Println(conn.Target())
	// Output: instar:///web.shop
}

// A target with the service where the authority belongs is refused.
func ExampleBuilder_Build() {
	builder := &grpcresolver.Builder{Client: &client.Client{}}
	target, _ := url.Parse("instar://web")
	_, err := builder.Build(resolver.Target{URL: *target}, nil, resolver.BuildOptions{})
	fmt.Println(err)
	// Output: the target must be instar:///<service>, and the builder needs a Client
}
