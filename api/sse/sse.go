// Package sse writes server-sent events.
package sse

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Seconds is a duration as it is told; what is not 0 is at least a millisecond.
func Seconds(d time.Duration) string {
	return strconv.FormatFloat(max(d, time.Millisecond).Seconds(), 'f', 3, 64)
}

// Heartbeat is how often a watch says that it is there.
const Heartbeat = 10 * time.Second

// most is how many bytes of events wait for a flush, and how large a buffer is kept for the next ones.
const most = 64 << 10

// Writer writes server-sent events. After the first error it writes nothing more.
type Writer struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
	Err error

	Stale bool // the watch was told so
	Sent  int  // bytes
}

// New begins the answer.
func New(rw http.ResponseWriter) *Writer {
	h := rw.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	rw.WriteHeader(http.StatusOK)
	w := &Writer{w: rw, rc: http.NewResponseController(rw)}
	w.buf.WriteString("retry: 2000\n\n")
	w.Flush()
	return w
}

// Send writes one event; it reaches the client with the next flush.
func (w *Writer) Send(event, id string, data any) {
	if w.Err != nil {
		return
	}
	text, err := json.Marshal(data) // one line
	if err != nil {
		w.Err = err
		return
	}
	w.Event(event, id, text)
}

// Event is Send for what is written already, in one line.
func (w *Writer) Event(event, id string, text []byte) {
	w.write(id, "event: "+event+"\ndata: ", text, "\n\n")
}

// Text is Event for an event that is written already, but for its id.
func (w *Writer) Text(id string, text []byte) { w.write(id, "", text, "") }

func (w *Writer) write(id, before string, text []byte, after string) {
	if w.Err != nil {
		return
	}
	if id != "" {
		w.buf.WriteString("id: " + id + "\n")
	}
	w.buf.WriteString(before)
	w.buf.Write(text)
	w.buf.WriteString(after)
	if w.buf.Len() > most {
		w.Flush()
	}
}

// Raw sends events that are written already, with their ids.
func (w *Writer) Raw(text []byte) {
	if w.Flush(); w.Err != nil {
		return
	}
	w.Sent += len(text)
	if _, w.Err = w.w.Write(text); w.Err == nil {
		w.Err = w.rc.Flush()
	}
}

// Notice sends an event that is about the watch itself.
func (w *Writer) Notice(event, why string) {
	w.Send(event, "", struct {
		Reason string `json:"reason"`
	}{why})
	w.Flush()
}

// Id moves the place of a reconnect without an event.
func (w *Writer) Id(id string) {
	w.buf.WriteString("id: " + id + "\n\n")
	w.Flush()
}

// Comment says that the watch is there.
func (w *Writer) Comment() {
	w.buf.WriteString(": still here\n\n")
	w.Flush()
}

// Flush sends what was written.
func (w *Writer) Flush() {
	if w.Err != nil || w.buf.Len() == 0 {
		return
	}
	w.Sent += w.buf.Len()
	if _, w.Err = w.w.Write(w.buf.Bytes()); w.Err == nil {
		w.Err = w.rc.Flush()
	}
	w.buf.Reset()
	if w.buf.Cap() > most {
		w.buf = bytes.Buffer{} // what one large event took is not kept for as long as the watch lives
	}
}

// SetStale says in a watch that what was told is stale, or is not any more.
func (w *Writer) SetStale(stale time.Duration) {
	if stale > 0 || w.Stale {
		w.SayStale(stale)
	}
}

// SayStale says how stale a watch is, also that it is not.
func (w *Writer) SayStale(stale time.Duration) {
	w.Stale = stale > 0
	text := "0"
	if w.Stale {
		text = Seconds(stale)
	}
	w.Event("stale", "", fmt.Appendf(nil, `{"staleSeconds":%s}`, text))
}
