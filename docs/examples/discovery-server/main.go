// Command discovery-server is a web server that registers itself, says that it is alive, and leaves without a failed request:
//
//	instar dev &
//	go build -o bin/ ./docs/examples/discovery-server # go run does not pass SIGTERM on
//	bin/discovery-server -registry http://127.0.0.1:8080 -service web &
//	kill -TERM %2 # nobody notices
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/bcc94042/instar/client"
)

func main() {
	registry := flag.String("registry", "http://127.0.0.1:8080", "URL of the registry")
	service := flag.String("service", "web", "service to be an instance of")
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on, and to be found at")
	flag.Parse()
	if err := run(context.Background(), &client.Client{URLs: []string{*registry}, Token: os.Getenv("INSTAR_TOKEN")}, *service, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, registry *client.Client, service, listen string) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	defer l.Close()
	addr := l.Addr().String()
	lease, err := registry.Register(ctx, client.Registration{
		Service: service, NodeAddress: addr, Check: client.Check{TTL: 5 * time.Second}, Payload: map[string]string{"pid": fmt.Sprint(os.Getpid())},
	})
	if err != nil {
		return err
	}
	log.Printf("%s is %s at %s", lease.InstanceID, service, addr)
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, "hello from %s\n", addr) })
	server := &http.Server{Handler: lease.Handler(hello), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	err = client.DrainOnSignal(ctx, lease, server)
	log.Print("drained")
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return err
}
