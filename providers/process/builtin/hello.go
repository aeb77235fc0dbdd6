package builtin

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

//go:embed hello.html
var page string

// greeter is the program hello.
type greeter struct {
	facts    facts
	started  time.Time
	requests atomic.Int64
	exit     func(code int)

	mu   sync.Mutex
	slow time.Duration
	sick bool
}

// facts is what hello tells.
type facts struct {
	Service   string  `json:"service"`
	Namespace string  `json:"namespace"`
	Revision  string  `json:"revision"`
	Greeting  string  `json:"greeting"`
	PID       int     `json:"pid"`
	Uptime    float64 `json:"uptimeSeconds"`
	Requests  int64   `json:"requests"`
	Sick      bool    `json:"sick"`
}

// write writes the page. It is no html/template: that calls methods by their names, with which the linker keeps every exported method of everything.
func (f *facts) write(w io.Writer) error {
	accent, does := "#0f766e", "is running"
	if f.Sick {
		accent, does = "#c2410c", "was told to be sick"
	}
	_, err := strings.NewReplacer(
		"{{service}}", html.EscapeString(f.Service), "{{namespace}}", html.EscapeString(f.Namespace), "{{revision}}", html.EscapeString(f.Revision),
		"{{greeting}}", html.EscapeString(f.Greeting), "{{pid}}", strconv.Itoa(f.PID), "{{uptime}}", fmt.Sprintf("%.0f", f.Uptime),
		"{{requests}}", strconv.FormatInt(f.Requests, 10), "{{accent}}", accent, "{{does}}", does,
	).WriteString(w, page)
	return err
}

// hello is told by its environment how to greet (GREETING), and how to misbehave: HELLO_EXIT (exit code, at once),
// HELLO_SICK, HELLO_SLOW.
func hello([]string) error {
	g, err := newGreeter(os.Getenv)
	if err != nil {
		return err
	}
	if code := os.Getenv("HELLO_EXIT"); code != "" {
		n, err := strconv.Atoi(code)
		if err != nil {
			return fmt.Errorf("HELLO_EXIT: %w", err)
		}
		fmt.Fprintf(os.Stderr, "hello: told to exit with %d\n", n)
		os.Exit(n)
	}
	h := g.handler()
	return serve(newWeb(h), h)
}

func newGreeter(env func(string) string) (*greeter, error) {
	g := &greeter{started: time.Now(), exit: os.Exit, facts: facts{
		Service:   cmp.Or(env("INSTAR_SERVICE"), "hello"),
		Namespace: cmp.Or(env("INSTAR_NAMESPACE"), "default"),
		Revision:  cmp.Or(env("INSTAR_REVISION"), "hello-00001"),
		Greeting:  env("GREETING"),
		PID:       os.Getpid(),
	}}
	g.facts.Greeting = cmp.Or(g.facts.Greeting, "Hello from "+g.facts.Service)
	_, err := g.tell(env("HELLO_SLOW"), env("HELLO_SICK"))
	return g, err
}

// tell changes how the program behaves; an empty value changes nothing.
func (g *greeter) tell(slow, sick string) (facts, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slow != "" {
		d, err := time.ParseDuration(slow)
		if err != nil || d < 0 || d > time.Hour {
			return facts{}, fmt.Errorf("slow: %q is no duration up to an hour", slow)
		}
		g.slow = d
	}
	if sick != "" {
		b, err := strconv.ParseBool(sick)
		if err != nil {
			return facts{}, fmt.Errorf("sick: %q is neither true nor false", sick)
		}
		g.sick = b
	}
	f := g.facts
	f.Uptime, f.Requests, f.Sick = time.Since(g.started).Seconds(), g.requests.Load(), g.sick
	return f, nil
}

func (g *greeter) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", g.health)
	mux.HandleFunc("POST /control", g.control)
	mux.HandleFunc("GET /{$}", g.greet)
	return http.NewCrossOriginProtection().Handler(mux)
}

func (g *greeter) health(w http.ResponseWriter, _ *http.Request) {
	if f, _ := g.tell("", ""); f.Sick {
		http.Error(w, "sick", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// control makes the program misbehave: slow=2s, sick=true, exit=1.
func (g *greeter) control(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if _, err := g.tell(q.Get("slow"), q.Get("sick")); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if code := q.Get("exit"); code != "" {
		n, err := strconv.Atoi(code)
		if err != nil || n < 0 || n > 255 {
			http.Error(w, "exit: not a number from 0 to 255", http.StatusBadRequest)
			return
		}
		g.exit(n)
	}
	w.WriteHeader(http.StatusNoContent)
}

func (g *greeter) greet(w http.ResponseWriter, r *http.Request) {
	g.requests.Add(1)
	if !g.linger(r) {
		return
	}
	f, _ := g.tell("", "")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	status := http.StatusOK
	if f.Sick {
		status = http.StatusServiceUnavailable
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(f) // the client has gone: nobody to tell
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = f.write(w)
}

// linger waits as long as the program was told to be slow, and reports whether the client still waits.
func (g *greeter) linger(r *http.Request) bool {
	g.mu.Lock()
	slow := g.slow
	g.mu.Unlock()
	if slow == 0 {
		return true
	}
	timer := time.NewTimer(slow)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}
