package reconcile

import (
	"context"
	"fmt"
	"time"

	"github.com/bcc94042/instar/consumers/cluster"
	"github.com/bcc94042/instar/internal/boottime"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// lossWindow is how much of the end of a stream a power loss takes at most: the default of the server's own sync interval,
// which the profile os leaves as it is.
const lossWindow = 2 * time.Minute

// History is where the stream of commands ended when this process, or its connection, was new to it.
type History struct {
	Reconnects uint64        // of the connection by then
	Opened     time.Time     // then, by the clock that stamps commands; zero before the first look
	Clock      time.Time     // what that clock showed at the look that was answered soonest
	Since      time.Duration // then, by the clock since boot
	Within     time.Duration // the server has answered at most so long before then, so Now is behind its clock by at most that
	Created    time.Time
	LastSeq    uint64
	LastTime   time.Time
	Above      uint64 // versions that may have been given out before the streams were restored
}

// Look takes note of the stream of commands, the first time and whenever the connection was made anew: its server may have
// lost what it had not synced. So it does when the stream itself was made anew, and fails for one that a restore has not ended. It
// reports whether it has taken note.
func (r Reader) Look(ctx context.Context, h *History) (bool, error) {
	reconnects := r.NC.Stats().Reconnects
	stream := r.Names.Stream(streams.CommandStream)
	asked := boottime.Now()
	info, err := streams.Info(ctx, r.NC, stream)
	if err != nil {
		return false, fmt.Errorf("cannot look at stream %s: %w", stream, err)
	}
	if err := streams.Unfinished(info.Config.Metadata); err != nil {
		return false, err
	}
	received := boottime.Now()
	if !h.Opened.IsZero() && h.Reconnects == reconnects && h.Created.Equal(info.Created) {
		if within := received - asked; within < h.Within {
			h.Clock, h.Since, h.Within = info.TimeStamp, received, within
		}
		return false, nil
	}
	*h = History{reconnects, info.TimeStamp, info.TimeStamp, received, received - asked, info.Created, info.State.LastSeq, info.State.LastTime, streams.Above(info.Config.Metadata)}
	return true, nil
}

// MayLack reports whether schedules or effects of an entity may have been lost: its last command is one that the stream of
// commands does not have any more, or one of the last that it has. What this process wrote itself is there, because it
// waited for the answers.
func (h *History) MayLack(e *machines.Entity) bool {
	return e.MarkedAt.Before(h.Created) || h.Cut(e)
}

// Cut is [History.MayLack] for what a loss of power may have taken from the end of the stream: not for what came before a stream that was made anew, as by a restore.
func (h *History) Cut(e *machines.Entity) bool {
	at := e.MarkedAt
	return !at.After(h.Opened.Add(time.Second)) && (e.Mark > h.LastSeq || at.After(h.LastTime.Add(-lossWindow)))
}

// Now is what the clock shows that stamps commands and events; before the first look, that of this machine.
func (h *History) Now() time.Time {
	if h.Opened.IsZero() {
		return time.Now()
	}
	return h.Clock.Add(boottime.Now() - h.Since)
}

// Ahead reports whether an entity's last command was one of a history that the stream of commands has lost, and stamped by a
// clock that ran ahead: its sequence is behind all that the stream had and all that came since, up to top, and its time has not come.
// By these two, commands of now would be taken for ones of then until it comes. Now is what the clock says that stamps commands, not
// this machine's: where that is behind, a command that another owner has taken meanwhile would be taken twice. So it would by a clock that is behind by as long as a slow leader's
// answer was on its way.
func (h *History) Ahead(e *machines.Entity, top uint64) bool {
	return !h.Opened.IsZero() && e.Mark > max(h.LastSeq, top) && e.MarkedAt.Sub(h.Now()) > cluster.MaxSkew+h.Within
}
