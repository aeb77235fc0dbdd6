package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// maxResult is how many bytes of data the engine takes with a report, with room for what is around them.
const maxResult = 255 << 10

// maxCode and maxMessage are how many bytes of a failure the engine keeps.
const maxCode, maxMessage = 256, 1024

// report sends the result until it is stored, or ctx ends: nobody waits for it any more, or the worker is to stop.
func (k *kind) report(ctx context.Context, t *Task[json.RawMessage], data json.RawMessage, failed *Failure) error {
	command, body := k.done, any(nil)
	if failed == nil {
		if most := min(k.w.opts.NC.MaxPayload()-4096, maxResult); most > 0 && int64(len(data)) > most { // with room for its headers
			failed = &Failure{Code: "result-too-large", Message: fmt.Sprintf("the result has %d bytes, %d are possible", len(data), most)}
		}
		body = map[string]any{"attempt": t.Attempt, "data": data}
	}
	if failed != nil {
		short := *failed
		short.Code, short.Message = clip(failed.Code, maxCode), clip(failed.Message, maxMessage)
		command, body = "failed", map[string]any{"effect": t.Effect, "attempt": t.Attempt, "failure": short}
	}
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		m := k.words(t).command(command, raw)
		this, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err = k.w.js.PublishMsg(this, m)
		cancel()
		switch {
		case err == nil:
			return nil
		case errors.Is(err, nats.ErrMaxPayload) && failed == nil: // the server that it is connected to now takes less
			return k.report(ctx, t, nil, &Failure{Code: "result-too-large", Message: fmt.Sprintf("the result has %d bytes with what is around it, %d are possible", len(raw), k.w.opts.NC.MaxPayload())})
		}
		if !rest(ctx, min(100*time.Millisecond<<min(try, 6), 5*time.Second)) {
			return fmt.Errorf("cannot send the result: %w", err)
		}
	}
}

// failure is what the error of a handler says.
func failure(err error) *Failure {
	var f *Failure
	switch {
	case !errors.As(err, &f):
		return &Failure{Code: "failed", Message: err.Error(), Retryable: true}
	case f == nil: // a pointer to none is an error that is not nil
		return &Failure{Code: "internal", Message: "the handler returned a nil failure", Retryable: true}
	}
	return f
}

// clip leaves out the end of a text that is longer, and says so.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}
