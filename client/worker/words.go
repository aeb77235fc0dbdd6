package worker

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// maxLine is how many bytes a line of a log has; longer ones become several.
const maxLine = 4 << 10

// toldEvery is the least time between two reports of progress: each is a command, and an event.
const toldEvery = time.Second

// words is what the handler of a task says while it works.
type words struct {
	w                     *Worker
	machine, key, attempt string

	mu   sync.Mutex
	told time.Time // how far it is
}

func (k *kind) words(t *Task[json.RawMessage]) *words {
	return &words{w: k.w, machine: k.machine, key: t.Key(), attempt: t.Attempt}
}

// Log adds lines to the log of a task (GET /v1/tasks/{id}/logs), which the server keeps for a time. It waits for nothing, and a line that gets lost is lost. What is said is stored as it
// is, but for what steers a terminal: secrets do not belong there. Only the machine task has logs that can be read.
func (t *Task[In]) Log(text string) {
	if t.words != nil {
		t.words.log(text)
	}
}

// Progress says how far a task is, in percent, for data.progress; of a text the first 256 bytes are kept. It waits for nothing, and tells at most once a second: the last word may be left
// out. It is for the machine task, and others that take a report progress as it does.
func (t *Task[In]) Progress(percent float64, text string) {
	if t.words != nil {
		t.words.progress(percent, text)
	}
}

func (w *words) log(text string) {
	for line := range strings.Lines(text) {
		line = strings.Map(printed, strings.ToValidUTF8(line, "?"))
		for {
			part := line
			if len(line) > maxLine {
				part = strings.ToValidUTF8(line[:maxLine], "") // not in the middle of a rune
			}
			line = line[len(part):]
			m := nats.NewMsg(strings.Join([]string{w.w.opts.Prefix, "log", w.machine, w.key}, "."))
			m.Data = []byte(part)
			m.Header.Set("Instar-Attempt", w.attempt)
			_ = w.w.opts.NC.PublishMsg(m) // it is lost then
			if line == "" {
				break
			}
		}
	}
}

// printed drops what steers a terminal.
func printed(r rune) rune {
	if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 {
		return -1
	}
	return r
}

func (w *words) progress(percent float64, text string) {
	now := time.Now()
	w.mu.Lock()
	soon := now.Sub(w.told) < toldEvery
	if !soon {
		w.told = now
	}
	w.mu.Unlock()
	if soon {
		return
	}
	raw, err := json.Marshal(map[string]any{"data": map[string]any{"attempt": w.attempt, "worker": w.w.opts.Name, "percent": percent, "message": text}})
	if err == nil {
		_ = w.w.opts.NC.PublishMsg(w.command("progress", raw)) // the next one is as good
	}
}

// command is one to the entity of the task. Its id is a random one: the stream drops a message whose id it has seen on any subject.
func (w *words) command(name string, body []byte) *nats.Msg {
	m := nats.NewMsg(strings.Join([]string{w.w.opts.Prefix, "cmd", w.machine, w.key, name}, "."))
	m.Data = body
	m.Header.Set("Nats-Msg-Id", w.machine+"/"+w.key+"/"+nats.NewInbox()[len(nats.InboxPrefix):])
	m.Header.Set("Instar-Actor", "worker "+w.w.opts.Name)
	return m
}
