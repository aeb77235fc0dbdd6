package poison

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// How many processes must have died with a message.
const (
	Suspected = 3                              // until it is suspected
	GivenUp   = Suspected + consumers.MaxTries // until it is given up
)

// Record is what the last process of a consumer found waiting, kept in the bucket of owners.
type Record struct {
	Seq    uint64    `json:"seq"`            // of the first message that was waiting
	Time   time.Time `json:"time"`           // when the stream took it
	UpTo   uint64    `json:"upTo,omitempty"` // the last that was begun
	Starts int       `json:"starts"`         // processes that began with it and did not come through, and those before that died up to it
	By     string    `json:"by"`             // the process
}

// Note is where a consumer writes down what it begins with.
type Note struct {
	Deps    *consumers.Deps
	Name    string
	Process string        // tells this process from those before it
	Life    time.Duration // 0 is for ever
}

// Before is what the processes before wrote down of a message. Those that died behind one that has ended since may have died of
// this one: they count, but not towards its end.
func (n Note) Before(ctx context.Context, seq uint64, at time.Time) (Record, error) {
	bucket := n.Deps.Names.Bucket(streams.OwnersBucket)
	stored, err := streams.Last(ctx, n.Deps.NC, streams.BucketStream(bucket), streams.BucketSubject(bucket, cluster.PoisonKey+n.Name))
	if err != nil {
		return Record{}, fmt.Errorf("cannot look up what %s began with: %w", n.Name, err)
	}
	var s Record
	if stored == nil || json.Unmarshal(stored.Data, &s) != nil {
		return Record{Seq: seq, Time: at}, nil
	}
	switch {
	case s.Seq == seq && s.Time.Equal(at):
		return s, nil
	case s.Seq < seq && seq <= s.UpTo && !at.Before(s.Time):
		s.Seq, s.Time, s.Starts = seq, at, min(s.Starts, Suspected)
		return s, nil
	}
	return Record{Seq: seq, Time: at}, nil
}

// StartsBy is how many processes will have begun with it when this one has.
func (s *Record) StartsBy(process string) int {
	if s.By == process {
		return s.Starts
	}
	return s.Starts + 1
}

// Begins writes down what this process begins with, and counts the process.
func (n Note) Begins(ctx context.Context, s *Record) error {
	s.Starts, s.By = s.StartsBy(n.Process), n.Process
	if err := n.Restore(ctx, s, n.Life); err != nil {
		return fmt.Errorf("cannot write down what %s begins with: %w", n.Name, err)
	}
	return nil
}

// Restore writes down what was there before, for a life; 0 is for ever.
func (n Note) Restore(ctx context.Context, s *Record, life time.Duration) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return n.write(ctx, data, life)
}

// Survived takes the note back: this process lives, whatever became of what it began. What failed for a reason that lies in the
// environment comes again and counts for nothing.
func (n Note) Survived(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), streams.ReadWithin)
	defer cancel()
	if err := n.write(ctx, nil, time.Minute); err != nil {
		return fmt.Errorf("cannot take back what %s began with: %w", n.Name, err)
	}
	return nil
}

// Withdraw leaves what was there before this process began: it lives, and counts for nothing.
func (n Note) Withdraw(ctx context.Context, before *Record) error {
	if before.Starts == 0 {
		return n.Survived(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), streams.ReadWithin)
	defer cancel()
	if err := n.Restore(ctx, before, 0); err != nil {
		return fmt.Errorf("cannot take back what %s began with: %w", n.Name, err)
	}
	return nil
}

func (n Note) write(ctx context.Context, data []byte, life time.Duration) error {
	w := kv.Write(n.Deps.Names.Bucket(streams.OwnersBucket), cluster.PoisonKey+n.Name, data)
	if life > 0 {
		streams.Keep(w.Msg, life)
	}
	return n.Deps.Appender.Append(ctx, []publish.Write{w})[0].Err
}
