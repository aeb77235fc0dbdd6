package core

// What a restart finds. A crash of the process loses nothing of a stream; a loss of power cuts its end off, and brings back what was taken out since
// the last sync. Ids of messages are known again as far as their messages are there, consumers begin with what was saved of them, and those in memory
// are gone.

import (
	"slices"

	"github.com/bcc94042/instar/internal/simulation/model/consumer"
	"github.com/bcc94042/instar/internal/simulation/model/store"
)

// Sync notes that everything of a stream is on disk.
func (c *Core) Sync(name string) {
	if s := c.streams[name]; s != nil {
		s.sync()
	}
}

func (s *Stream) sync() {
	s.synced, s.syncAt, s.removed = s.log.Last, 0, nil
}

// Mark is how far a stream has been written at one moment.
type Mark struct {
	last  uint64
	taken uint64 // messages that were taken out, ever
}

// Written is how far a stream has been written, and whether all of that is on disk.
func (c *Core) Written(name string) (m Mark, synced bool) {
	s := c.streams[name]
	if s == nil {
		return m, true
	}
	return Mark{s.log.Last, s.taken}, s.synced >= s.log.Last && len(s.removed) == 0
}

// Synced is the last message of a stream that is on disk for certain.
func (c *Core) Synced(name string) uint64 {
	if s := c.streams[name]; s != nil {
		return s.synced
	}
	return 0
}

// SyncTo notes that a stream is on disk as far as a mark says, which was taken since the last restart.
func (c *Core) SyncTo(name string, m Mark) {
	if s := c.streams[name]; s != nil {
		s.synced = max(s.synced, min(m.last, s.log.Last))
		s.removed = s.removed[len(s.removed)-int(min(s.taken-m.taken, uint64(len(s.removed)))):]
	}
}

// written plans the next sync, or does it.
func (s *Stream) written() {
	switch {
	case s.told():
	case s.c.o.SyncEvery == 0:
		s.synced = s.log.Last
	case s.syncAt == 0:
		s.syncAt = s.c.nanos() + int64(s.c.o.SyncEvery)
	}
}

// told reports whether the stream is synced only when somebody says so.
func (s *Stream) told() bool { return s.c.o.Told != nil && s.c.o.Told(s.cfg.Name) }

// Restart starts again with what is stored. keep is how far each stream is kept, between the last message that was synced and the last one; nil is all. Of what
// was taken out since the last sync, revive brings back what it says, and so of what consumers have acknowledged last; nil is nothing.
func (c *Core) Restart(keep func(stream string, synced, last uint64) uint64, revive func(stream string, seq uint64) bool) {
	for _, name := range c.names {
		s := c.streams[name]
		last := s.log.Last
		if keep != nil {
			last = min(max(keep(name, s.synced, last), s.synced), last)
		}
		s.restart(last, revive)
	}
	c.sent, c.later = nil, nil
}

func (s *Stream) restart(last uint64, revive func(string, uint64) bool) {
	if last < s.log.Last {
		s.log.Truncate(last)
	}
	if revive != nil {
		for _, e := range s.removed {
			if e.Seq <= last && revive(s.cfg.Name, e.Seq) {
				s.log.Revive(e)
			}
		}
	}
	if per := s.cfg.MaxMsgsPer; per > 0 {
		for _, x := range s.log.Subjects {
			for _, seq := range slices.Clone(x.Seqs[:max(int64(len(x.Seqs))-per, 0)]) {
				s.log.Remove(seq)
			}
		}
	}
	s.sync()
	clear(s.ids)
	clear(s.schedules)
	clear(s.batches)
	clear(s.fast)
	s.lives, s.armed, s.lastID, s.group = nil, 0, "", group{}
	now := s.c.wall()
	s.log.All(func(e *store.Entry) {
		s.lastID = store.Value(e.Header, store.HeaderMsgID)
		if now-e.TS < int64(s.cfg.Duplicates) {
			s.remember(s.lastID, e.Seq, e.TS)
		}
		if e.Expires > 0 {
			s.lives = pushLife(s.lives, life{e.Expires, e.Seq})
		}
		s.schedule(e)
	})
	for _, o := range slices.Clone(s.order) {
		if o.Config().MemoryStorage {
			o.End()
			delete(s.consumers, o.Name())
			s.order = slices.DeleteFunc(s.order, func(x *consumer.Consumer) bool { return x == o })
			continue
		}
		unwritten := uint64(0)
		for revive != nil && unwritten < 8 && revive(s.cfg.Name, s.log.Last) {
			unwritten++
		}
		o.Restart(s.log.Last, unwritten)
	}
}
