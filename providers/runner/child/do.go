package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/bcc94042/instar/providers"
)

// results is the descriptor that an answer is written to.
const results = 3

// Do does the work and ends the process, if that was started for it; else it returns at once. It is called from an init function, so that every program that imports the caller, also a test,
// is its own child. ctx ends when the process is asked to end, and the process has a grace for that.
func Do[In, Out any](name string, work func(ctx context.Context, in In) (Out, error)) {
	if !ours(name) {
		return
	}
	if err := serve(name, work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve[In, Out any](name string, work func(ctx context.Context, in In) (Out, error)) error {
	syscall.CloseOnExec(results)
	to := os.NewFile(results, "results")
	raw, err := io.ReadAll(os.Stdin)
	if err != nil {
		return fmt.Errorf("cannot read what to do: %w", err)
	}
	var q request
	if err := json.Unmarshal(raw, &q); err != nil {
		return fmt.Errorf("cannot read what to do: %w", err)
	}
	var in In
	if err := json.Unmarshal(q.In, &in); err != nil {
		return fmt.Errorf("cannot read what to do: %w", err)
	}
	rename(name)
	if err := q.Limits.set(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	out, err := work(ctx, in)
	var a answer
	if err != nil {
		switch {
		case errors.As(err, &a.Error):
		case errors.Is(err, syscall.EFBIG): // the signal for it is ignored by the runtime
			a.Error = providers.Errorf(providers.LimitExceeded, "%s writes a file of more than the %d MiB that it may have", name, q.Limits.File>>20)
		default:
			a.Error = providers.Errorf(providers.CodeOf(err), "%v", err)
		}
	} else if a.Out, err = json.Marshal(out); err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	body, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("cannot write the result: %w", err)
	}
	if len(body) > most {
		body, err = json.Marshal(answer{Error: providers.Errorf(providers.LimitExceeded, "the result of %s has more than %d MiB", name, most>>20)})
	}
	_, failed := to.Write(body)
	return errors.Join(err, failed)
}

// set sets the limits of this process. None is above those that it has.
func (l Limits) set() error {
	if l.Memory > 0 {
		debug.SetMemoryLimit(l.Memory / 4 * 3)
	}
	for _, s := range []struct {
		resource int
		value    int64
	}{
		{syscall.RLIMIT_DATA, more(l.Memory, written())},
		{syscall.RLIMIT_CPU, int64(l.CPU / time.Second)},
		{syscall.RLIMIT_FSIZE, l.File},
		{syscall.RLIMIT_NOFILE, int64(l.Files)},
		{syscall.RLIMIT_CORE, 0},
	} {
		if s.value <= 0 && s.resource != syscall.RLIMIT_CORE {
			continue
		}
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(s.resource, &limit); err != nil {
			return fmt.Errorf("cannot read a limit of this process: %w", err)
		}
		limit.Cur = min(uint64(s.value), limit.Max)
		if s.resource == syscall.RLIMIT_CPU && limit.Cur < math.MaxInt64 {
			limit.Max = min(limit.Max, limit.Cur+1) // the first is a signal that can be ignored
		} else {
			limit.Max = limit.Cur
		}
		if err := syscall.Setrlimit(s.resource, &limit); err != nil {
			return fmt.Errorf("cannot set a limit of this process: %w", err)
		}
	}
	return nil
}

func more(limit, there int64) int64 {
	if limit <= 0 {
		return limit
	}
	return limit + there
}
