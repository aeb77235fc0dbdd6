package orchestrator

// The ledger: one value that says which tasks have a slot. write stores it at the revision of the last write, with everything that was granted and given back since; a holder of the role
// that was deposed has another revision, and its write is refused. Whoever takes over reads it before anything else.

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/orchestrator/schedule"
	"github.com/bcc94042/instar/internal/jsonwrite"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// Slots is the bucket of the ledger, before the prefix of the installation.
const Slots = "slots"

const ledgerKey = "ledger"

// maxSlots is how many slots there can be. Where names are long one stored value holds fewer: nothing is started then that it has no room for.
const (
	maxSlots   = task.MaxParallel
	maxLedger  = streams.MaxMessage - 32<<10 // bytes of the value, with room for headers
	mostOfSlot = 1280                        // bytes of a slot with the longest names, and of the rates of its entries
)

// slot is a task that was granted.
type slot struct {
	Key     string
	Type    string
	Pool    string
	Enqueue uint64
	Start   uint64 // that it was granted for
	Version uint64 // of the task, when it was granted or last seen to run: what is older says nothing about it
	Unique  string // what no other task may hold meanwhile ([uniqueOf])

	runs  bool      // it was seen to run
	asked time.Time // when started was sent last
}

// ledger is the stored value, and what changes between two writes.
type ledger struct {
	deps     *consumers.Deps
	bucket   string
	slots    map[string]*slot
	revision uint64
	changed  bool // something was given back that the stored value has
	buffer   []byte
	size     int // of the stored value, and of what was added since at most
}

// openLedger makes the bucket if it is not there, and reads the ledger from its leader.
func openLedger(ctx context.Context, d *consumers.Deps, replicas int) (*ledger, map[string]schedule.Window, error) {
	l := &ledger{deps: d, bucket: d.Names.Bucket(Slots), slots: map[string]*slot{}}
	if err := makeBucket(ctx, d, l.bucket, replicas); err != nil {
		return nil, nil, fmt.Errorf("cannot make the bucket %s: %w", l.bucket, err)
	}
	m, err := kv.Read(ctx, d.NC, l.bucket, ledgerKey)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot read the slots: %w", err)
	}
	if m == nil {
		return l, nil, nil
	}
	l.revision = m.Sequence
	if kv.Absent(m) {
		return l, nil, nil
	}
	l.size = len(m.Data)
	rates, err := l.parse(m.Data)
	if err != nil { // whoever runs is seen to run, and gets a slot
		d.Log.Error("the stored slots cannot be read; taking those of the tasks that run", "error", err)
		clear(l.slots)
	}
	return l, rates, nil
}

func makeBucket(ctx context.Context, d *consumers.Deps, bucket string, replicas int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := d.JS.KeyValue(ctx, bucket); err == nil {
		return nil
	}
	_, err := d.JS.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: bucket, Description: "Which tasks have a slot", History: 1, Replicas: max(replicas, 1)})
	return err
}

// parse reads the stored form: a slot is [key, type, pool, enqueue, start, version], and what is unique of it behind that.
func (l *ledger) parse(data []byte) (map[string]schedule.Window, error) {
	var v struct {
		Slots [][]json.RawMessage        `json:"slots"`
		Rates map[string]schedule.Window `json:"rates"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	for _, row := range v.Slots {
		s := &slot{}
		if len(row) < 6 {
			return nil, fmt.Errorf("a slot has %d fields", len(row))
		}
		for i, to := range []any{&s.Key, &s.Type, &s.Pool, &s.Enqueue, &s.Start, &s.Version, &s.Unique} {
			if i == len(row) {
				break
			}
			if err := json.Unmarshal(row[i], to); err != nil {
				return nil, err
			}
		}
		if _, _, _, err := streams.SplitKey(s.Key); err != nil {
			return nil, err
		}
		l.slots[s.Key] = s
	}
	return v.Rates, nil
}

// room is for how many more slots the value has room, whatever their names are.
func (l *ledger) room() int { return max(0, (maxLedger-l.size)/mostOfSlot) }

func (l *ledger) add(s *slot) {
	l.slots[s.Key] = s
	l.size += mostOfSlot
	l.changed = true
}

func (l *ledger) drop(s *slot) {
	delete(l.slots, s.Key)
	l.changed = true
}

// encode is the stored form.
func (l *ledger) encode(rates map[string]schedule.Window) ([]byte, error) {
	b := append(l.buffer[:0], `{"slots":[`...)
	first := true
	for _, s := range l.slots {
		if !first {
			b = append(b, ',')
		}
		first = false
		b = jsonwrite.Text(append(b, '['), s.Key)
		b = jsonwrite.Text(append(b, ','), s.Type)
		b = jsonwrite.Text(append(b, ','), s.Pool)
		for _, n := range []uint64{s.Enqueue, s.Start, s.Version} {
			b = strconv.AppendUint(append(b, ','), n, 10)
		}
		if s.Unique != "" {
			b = jsonwrite.Text(append(b, ','), s.Unique)
		}
		b = append(b, ']')
	}
	b = append(b, ']')
	if len(rates) > 0 {
		text, err := json.Marshal(rates)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"rates":`...), text...)
	}
	return append(b, '}'), nil
}

// write stores the slots and rates. Its error says that this process is not the only one that schedules, or cannot store: it reads everything anew then.
func (l *ledger) write(ctx context.Context, rates map[string]schedule.Window) error {
	b, err := l.encode(rates)
	if err != nil {
		return err
	}
	l.buffer, l.size = b, len(b)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r := l.deps.Appender.Append(ctx, []publish.Write{kv.WriteAt(l.bucket, ledgerKey, append([]byte(nil), b...), l.revision)})[0]
	if r.Err != nil {
		return fmt.Errorf("cannot write the slots: %w", r.Err)
	}
	l.revision, l.changed = r.Seq, false
	return nil
}
