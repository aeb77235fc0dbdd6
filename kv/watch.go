package kv

import (
	"context"
	"errors"
	"iter"

	"github.com/bcc94042/instar/kv/internal/feed"
)

// Watch gives the newest value of every key that the filter names, then one entry that is Synced, then every change,
// until the context ends or the caller breaks off. The filter is a key or a pattern such as "default.web.>"; empty
// means all. Only revisions above after are given, so a caller goes on where it stopped with the last one it had; it
// does not hear of keys whose delete marker has gone since, nor that the stream lost what an earlier watch gave.
//
// A key that changes while the snapshot is given may come twice, the newer revision last. A value that cannot be
// decoded comes as its entry with a [CorruptError], and the watch goes on. Any other error is the last that is given:
// a failure to begin, the context's error, or [ErrReset]; breaks in between are healed.
func (b *Bucket[T]) Watch(ctx context.Context, filter string, after uint64) iter.Seq2[Entry[T], error] {
	return func(yield func(Entry[T], error) bool) {
		f, err := feed.Open(ctx, b.js, b.name, filter, feed.Position{Revision: after})
		if err != nil {
			yield(Entry[T]{}, err)
			return
		}
		defer func() {
			if f != nil {
				f.Close()
			}
		}()
		var wait feed.Backoff
		for synced := false; ; {
			if err = b.drain(ctx, f, &synced, yield); errors.Is(err, errStopped) {
				return
			}
			at := f.Position
			f.Close()
			for f = nil; f == nil; {
				if err = wait.Wait(ctx); err == nil {
					f, err = feed.Open(ctx, b.js, b.name, filter, at)
				}
				if ctx.Err() != nil || errors.Is(err, ErrReset) {
					yield(Entry[T]{}, err)
					return
				}
			}
			if f.Revision > at.Revision {
				wait.Reset()
			}
		}
	}
}

// errStopped says that the caller of an iterator wants no more.
var errStopped = errors.New("reader stopped")

// drain gives what the feed has until the feed breaks or the caller stops.
func (b *Bucket[T]) drain(ctx context.Context, f *feed.Feed, synced *bool, yield func(Entry[T], error) bool) error {
	var batch []feed.Update
	for {
		if f.CaughtUp && !*synced {
			*synced = true
			if !yield(Entry[T]{Synced: true, Revision: f.Revision}, nil) {
				return errStopped
			}
		}
		var err error
		batch, err = f.Next(ctx, batch[:0])
		for _, u := range batch {
			if !yield(b.entry(u)) {
				return errStopped
			}
		}
		if err != nil {
			return err
		}
	}
}

// List gives the value of every key that the filter names (see [Bucket.Watch]) and ends. A key that is written
// meanwhile may come twice, the newer revision last; one that is deleted meanwhile may still come.
func (b *Bucket[T]) List(ctx context.Context, filter string) iter.Seq2[Entry[T], error] {
	return func(yield func(Entry[T], error) bool) {
		for e, err := range b.Watch(ctx, filter, 0) {
			if e.Synced {
				return
			}
			if (err != nil || !e.Deleted) && !yield(e, err) {
				return
			}
		}
	}
}
