package load

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
)

// Watch follows every change of all entities. When a server ends the watch, or dies, it goes on where it was at the next one.
type Watch struct {
	Bases []string // URLs of the servers

	mu      sync.Mutex
	seen    map[string]told
	place   string // the id of the last event
	wrong   []string
	streams int // connections that told something
	resets  int
}

// told is what a watch said last of an entity.
type told struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace"`
	State     string `json:"state"`
	Version   uint64 `json:"version"`
	Revision  uint64 `json:"revision"`

	by     string // event and server
	stream int    // connection
}

func (e told) String() string {
	return fmt.Sprintf("%s, version %d, revision %d (%s)", e.State, e.Version, e.Revision, e.by)
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		_ = w.follow(ctx, w.Bases[n%len(w.Bases)]) // the next one goes on
		wait.For(ctx, 50*time.Millisecond)
	}
}

// follow reads one connection. A comment comes every 10 s, so a longer silence is a server that stands still.
func (w *Watch) follow(ctx context.Context, base string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(15*time.Second, cancel)
	defer silence.Stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/watch?machine="+check.Machine, nil)
	if err != nil {
		return err
	}
	if w.place != "" {
		r.Header.Set("Last-Event-ID", w.place)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	w.mu.Lock()
	w.streams++
	w.mu.Unlock()
	lines := bufio.NewReader(res.Body)
	var event, id, data string
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		silence.Reset(15 * time.Second)
		field, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		switch field {
		case "event":
			event = value
		case "id":
			id = value
		case "data":
			data = value
		case "":
			if event == "end" {
				return io.EOF
			}
			w.take(base, event, id, data)
			event, id, data = "", "", ""
		}
	}
}

func (w *Watch) take(base, event, id, data string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if id != "" {
		w.place = id
	}
	switch event {
	case "reset":
		w.resets++
		w.place, w.seen = "", nil
	case "snapshot":
		var all struct{ Items []told }
		w.read(data, &all)
		for _, e := range all.Items {
			w.put(base, event, e)
		}
	case "entity":
		var e told
		w.read(data, &e)
		w.put(base, event, e)
	case "parked":
		w.wrong = append(w.wrong, "a value cannot be read: "+data)
	}
}

func (w *Watch) read(data string, to any) {
	if err := json.Unmarshal([]byte(data), to); err != nil {
		w.wrong = append(w.wrong, fmt.Sprintf("an event cannot be read: %v: %s", err, data))
	}
}

func (w *Watch) put(base, event string, e told) {
	key := e.Namespace + "." + e.ID
	e.by = event + " of " + base
	e.stream = w.streams
	// The last release could take back for a moment what another node had told.
	if had, ok := w.seen[key]; ok && had.stream == e.stream && e.Revision < had.Revision {
		w.wrong = append(w.wrong, fmt.Sprintf("at %s %s went back from %s to %s", time.Now().UTC().Format("15:04:05.000"), key, had, e))
	}
	if w.seen == nil {
		w.seen = map[string]told{}
	}
	w.seen[key] = e
}

// Figures are how many connections there were, and how many began anew.
func (w *Watch) Figures() (streams, resets int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.streams, w.resets
}

// Lacks says what is wrong with what was told, once nothing changes any more.
func (w *Watch) Lacks(values map[string]check.Value) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := append([]string{}, w.wrong...)
	for key, v := range values {
		if had := w.seen[key]; had.State != v.State || had.Version != v.Version || had.Revision != v.Revision {
			list = append(list, fmt.Sprintf("%s is %s, version %d, revision %d; the last that was told is %s", key, v.State, v.Version, v.Revision, had))
		}
	}
	return list
}
