package log

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/streams/outbox/relay/session"
	"github.com/bcc94042/instar/streams/outbox/relay/sink"
)

// tend opens the shards that have come and forgets those that have gone.
func (l *Loop) tend(ctx context.Context) error {
	changed, err := l.Shards.Tend(ctx)
	if changed {
		l.drop()
	}
	if err != nil {
		return err
	}
	for _, n := range l.Shards.Unopened() {
		if err := l.open(ctx, n); err != nil {
			return err
		}
	}
	l.Shards.Opener.Forget()
	return nil
}

// open opens a shard at the position in the stream; the one in the database only serves when the stream has none.
func (l *Loop) open(ctx context.Context, n int) error {
	opener := l.Shards.Opener
	saved, err := opener.SavedPosition(ctx, n)
	if err != nil {
		return err
	}
	accepted, err := opener.NotRegressed(ctx, n)
	var back *session.StreamRegressedError
	switch {
	case errors.As(err, &back) && back.From > 0:
		l.Control.Log.Warn("the stream is older than the database; publishing again what it has lost", "shard", n, "from", back.Position())
	case err != nil:
		return err
	}
	s, err := opener.Open(ctx, n, saved)
	if err != nil {
		return err
	}
	if s.Back {
		l.Control.Log.Error("the database was set back to an older state (failover, restore): continuing from there, skipping what the stream has", "shard", n, "position", s.Pos.String())
	}
	s.Mended = back != nil
	if err := l.whole(ctx, s, accepted); err != nil {
		return err
	}
	if err := l.deliverer.Compare(ctx, s, accepted); err != nil {
		return err
	}
	last, err := LastNumber(ctx, l.Pool) // of now: who stands by may have begun long ago
	if err != nil {
		return err
	}
	if sink.Position(last) < max(s.Pos, s.SeenTo) {
		return l.behind(s, last)
	}
	if err := opener.Note(ctx, s); err != nil {
		return err
	}
	if err := l.deliverer.Load(ctx, n); err != nil {
		return err
	}
	l.Shards.Opened(s)
	l.Control.Log.Info("opened a shard", "shard", n, "position", s.Pos.String(), "readBack", len(s.Seen))
	return nil
}

// whole makes sure that a shard of the log can go on from its position: nothing behind it that the stream has not got may have
// been dropped.
func (l *Loop) whole(ctx context.Context, s *session.Session, accepted bool) error {
	if s.From == 0 || s.Back { // it goes on from where the database believes to be
		return nil
	}
	var dropped int64
	err := l.Pool.QueryRow(ctx, `select seq from outbox_dropped where shard = $1`, s.Shard).Scan(&dropped)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("relay: cannot read outbox_dropped: %w", err)
	}
	switch {
	case sink.Position(dropped) <= max(s.Pos, s.SeenTo):
		return nil
	case !accepted:
		return s.Regressed()
	}
	if _, err := l.Pool.Exec(ctx, `delete from outbox_dropped where shard = $1`, s.Shard); err != nil {
		return fmt.Errorf("relay: cannot write outbox_dropped: %w", err)
	}
	return nil
}

// ErrRegressed says that the database is at an older state than the stream.
var ErrRegressed = errors.New("the database was set back to an older state")

// behind says that the sequence has gone back: the database is an older copy of the one that the position is from.
func (l *Loop) behind(s *session.Session, last int64) error {
	subject, _ := s.Guard()
	return fmt.Errorf("relay: shard %d of %s stands at %d, but the sequence of its table only at %d: %w. Rows that it numbers again would be taken for sent. Set the sequence beyond the position, or remove the position with: nats stream purge %s --subject %s", s.Shard, l.Config.Name, max(s.Pos, s.SeenTo), last, ErrRegressed, l.Shards.Opener.Stream.Name, subject[0])
}
