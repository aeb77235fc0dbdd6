package storage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers"
)

// patience is for how long nothing may come of a list.
const patience = 15 * time.Second

const (
	soon     = 250 * time.Millisecond // without anything, after which it is asked whether anything is left
	lost     = 2 * time.Second        // without anything, after which what reads a list is replaced
	inactive = 30 * time.Second       // after which the server ends what reads a list, where it was not told to
)

const most = 1 << 60 // bytes that are counted

// names is how many objects may have the same parts. A rename that was interrupted leaves two.
const names = 16

// scan gives what is said of each name of a bucket, in the order in which it was stored. A name that is written meanwhile may come again, also as one that was deleted: the last word holds. It does not use the object store of nats.go: that takes a list that was cut off for whole, of which an export would be one of a part, and waits for ever where
// the last message is none of its own.
//
// The stream is [led].
func (o *ObjectStores) scan(ctx context.Context, st jetstream.Stream, bucket string, each func(*jetstream.ObjectInfo)) error {
	within := cmp.Or(o.Patience, patience)
	seen, end := uint64(0), time.Now().Add(within)
	for try := 0; ; try++ {
		before := seen
		done, err := o.part(ctx, st, bucket, within, &seen, each)
		if known := (*providers.Error)(nil); done || ctx.Err() != nil || errors.As(err, &known) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		if seen > before {
			try, end = 0, time.Now().Add(within)
		}
		if time.Now().After(end) || !wait.Backoff(ctx, try) {
			return fmt.Errorf("nothing more came of it for %s: %v", within, err) // the time that a request had is not that of ctx
		}
	}
}

// part scans on behind what was seen, until there is nothing more, which is done, or what reads it is interrupted: its node has gone, or messages were lost.
func (o *ObjectStores) part(ctx context.Context, st jetstream.Stream, bucket string, within time.Duration, seen *uint64, each func(*jetstream.ObjectInfo)) (done bool, err error) {
	of, every := wait.EachRequest(ctx), "$O."+bucket+".M.>"
	// Each name has one message. The last of each would be chosen now, and the consumer would wait where one was deleted since. An ordered one makes itself anew for as long as that fails.
	c, err := o.JS.CreateConsumer(of, "OBJ_"+bucket, jetstream.ConsumerConfig{
		FilterSubject: every, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: *seen + 1, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: inactive,
	})
	if err != nil {
		return false, err
	}
	defer func() {
		gone, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = o.JS.DeleteConsumer(gone, "OBJ_"+bucket, c.CachedInfo().Name) // which ends by itself, too
	}()
	given, end, idle := uint64(0), time.Now().Add(min(within, lost)), false
	for left, caught := c.CachedInfo().NumPending, (time.Time{}); ; {
		if left == 0 {
			// A replica may not have all yet that the leader has, and what is written anew is deleted before it counts.
			switch _, err := st.GetMsg(of, *seen+1, jetstream.WithGetMsgSubject(every)); {
			case errors.Is(err, jetstream.ErrMsgNotFound):
				return true, nil
			case err != nil || idle: // it is slow, or away
			case caught.IsZero():
				caught = time.Now()
			case time.Since(caught) > within:
				return true, providers.Errorf(providers.Unavailable, "the bucket %s is written faster than it is listed", bucket)
			}
			left = 1
		}
		batch, err := c.Fetch(int(min(left, 500)), jetstream.FetchMaxWait(min(within, soon)))
		if err != nil {
			return false, err
		}
		before := given
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return false, err
			}
			if given++; meta.Sequence.Consumer != given {
				return false, errors.New("a part of it was lost")
			}
			info := &jetstream.ObjectInfo{}
			if err := json.Unmarshal(m.Data(), info); err != nil {
				return true, providers.Errorf(providers.Invalid, "message %d of the stream OBJ_%s, which is to describe an object, is none of an object store; remove it (nats stream rmm OBJ_%[2]s %[1]d)", meta.Sequence.Stream, bucket)
			}
			*seen, left, info.ModTime = meta.Sequence.Stream, meta.NumPending, meta.Timestamp
			if left > 0 {
				caught = time.Time{}
			}
			each(info)
		}
		switch err := cmp.Or(ctx.Err(), batch.Error()); {
		case err != nil:
			return false, err
		case given > before:
			end, idle = time.Now().Add(min(within, lost)), false
		case time.Now().After(end): // what was sent may have been lost with a connection, and is not sent again
			return false, errors.New("nothing came")
		default:
			left, idle = 0, true
		}
	}
}

// list is what is said of the objects of a bucket. One that is not plausible is read again: what it was compared with is of a later time.
func (o *ObjectStores) list(ctx context.Context, st jetstream.Stream, bucket string) (all []*jetstream.ObjectInfo, err error) {
	var implausible error
	for range 2 {
		last := map[string]*jetstream.ObjectInfo{}
		if err := o.scan(ctx, st, bucket, func(info *jetstream.ObjectInfo) { last[info.Name] = info }); err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(slices.Collect(maps.Values(last)), func(info *jetstream.ObjectInfo) bool { return info.Deleted })
		slices.SortFunc(all, func(x, y *jetstream.ObjectInfo) int { return cmp.Compare(x.Name, y.Name) })
		now, err := st.Info(wait.EachRequest(ctx))
		if err != nil {
			return nil, err
		}
		led(st)
		if implausible = plausible(all, now.State.Bytes); implausible == nil {
			return all, nil
		}
	}
	return nil, implausible
}

// plausible fails where objects have more than all of the bucket, which would fill a disk. Names of the same parts are counted once, by the largest size. Of links, and of what has no id, nothing is read.
func plausible(all []*jetstream.ObjectInfo, has uint64) error {
	shared := map[string][]*jetstream.ObjectInfo{}
	for _, info := range all {
		if info.NUID != "" && (info.Opts == nil || info.Opts.Link == nil) {
			shared[info.NUID] = append(shared[info.NUID], info)
		}
	}
	larger := func(a, b *jetstream.ObjectInfo) int {
		return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Name, b.Name))
	}
	bytes, largest := uint64(0), []*jetstream.ObjectInfo{}
	for id, of := range shared {
		if slices.SortFunc(of, larger); len(of) > names {
			return fmt.Errorf("%d of its objects have the same parts (%.100q), and %d may: remove some, as %s", len(of), id, names, named(of))
		}
		bytes, largest = min(bytes+min(of[0].Size, most), most), append(largest, of[0])
	}
	if bytes <= has {
		return nil
	}
	slices.SortFunc(largest, larger)
	return fmt.Errorf("its objects are said to have %d bytes, and all of it has %d; the largest are %s", bytes, has, named(largest))
}

// named are the first few objects.
func named(list []*jetstream.ObjectInfo) string {
	var text []string
	for _, info := range list[:min(len(list), 3)] {
		text = append(text, fmt.Sprintf("%.100q", info.Name))
	}
	return strings.Join(text, ", ")
}
