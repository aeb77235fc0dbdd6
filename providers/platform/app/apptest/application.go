package apptest

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Versions are those that every world has: two good ones, one that ends at once, and one that tells its secret as it does.
var Versions = []string{"1.0", "1.1", "sick", "leaky"}

// Env is what the configuration of every world has for all releases. Its values may be passwords: "leaky" tells them, too.
var Env = map[string]string{"API_KEY": "key-of-the-platform"}

// Facts are what an application tells of itself.
type Facts struct {
	Version, Port, Tenant, Dir, Home, Work, Secret string
	PID, UID, NoNewPrivs                           int
	Files                                          uint64 // that it may open
}

// Application is one that knows nothing of Instar: it serves the socket that it was handed, or listens on HOST and PORT. A test's TestMain runs it, and exits with what it returns.
func Application(version string) int {
	l, err := Listen()
	if err != nil {
		fmt.Fprintln(os.Stderr, "no socket:", err)
		return 3
	}
	secret, err := os.ReadFile(os.Getenv("DATABASE_URL_FILE"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	switch version {
	case "sick":
		fmt.Fprintln(os.Stderr, "the schema is not there")
		return 5
	case "leaky":
		fmt.Fprintf(os.Stderr, "cannot enter %s by %s, nor postgres://other:word@db: the password secret is wrong\n", secret, os.Getenv("API_KEY"))
		return 6
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(factsOf(version, string(secret)))
	})} // #nosec G112 -- of a test
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	<-ctx.Done()
	_ = srv.Shutdown(context.Background()) // it is going to end
	<-served
	return 0
}

func factsOf(version, secret string) Facts {
	work, _ := os.Getwd() // empty says it
	var files syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files) // zero says it
	return Facts{
		Version: version, Port: os.Getenv("PORT"), Tenant: os.Getenv("TENANT_ID"), Dir: os.Getenv("TENANT_DIR"), Home: os.Getenv("HOME"), Work: work, Secret: secret,
		PID: os.Getpid(), UID: os.Getuid(), NoNewPrivs: noNewPrivs(), Files: files.Cur,
	}
}

// Listen is the socket that was handed over, or one on HOST and PORT.
func Listen() (net.Listener, error) {
	if os.Getenv("LISTEN_FDS") == "1" && os.Getenv("LISTEN_PID") == fmt.Sprint(os.Getpid()) {
		return net.FileListener(os.NewFile(3, "socket"))
	}
	return net.Listen("tcp", net.JoinHostPort(os.Getenv("HOST"), os.Getenv("PORT")))
}

// noNewPrivs is what /proc says of this process; -1 where that is not there.
func noNewPrivs() int {
	text, err := os.ReadFile("/proc/self/status")
	n := -1
	if err == nil {
		if _, after, found := strings.Cut(string(text), "NoNewPrivs:"); found {
			_, _ = fmt.Sscan(after, &n) // -1 says it
		}
	}
	return n
}
