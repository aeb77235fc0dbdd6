package preservation

import (
	"cmp"
	"fmt"
	"time"

	"github.com/bcc94042/instar/machines"
)

// When a service enters self-preservation, and for how long.
const (
	DefaultLimit = 0.15             // more than this share of its instances, when they give no sign
	FailingLimit = 0.5              // or this one, when some of them answer, and say that they are not well
	MinExpiring  = 3                // and at least so many: one or two that die are dead
	DecayAfter   = 30 * time.Minute // protected for longer, what is silent is dead
	SettleAfter  = time.Minute      // recovering for so long without new losses, it is normal
	ReleaseFor   = 10 * time.Minute // after a release or a decay nothing is protected; a release may say another time
)

// Data is what the self-preservation of a service in a zone keeps.
type Data struct {
	Losses        Losses    `json:"losses,omitzero"`        // as they stood last
	Worst         Losses    `json:"worst,omitzero"`         // while it was protected, or the last time it was
	ProtectedAt   time.Time `json:"protectedAt,omitzero"`   // since when nothing expires, or the last time it began
	Hold          *Hold     `json:"hold,omitempty"`         // an operator's: no deadline and no report ends it
	ReleasedUntil time.Time `json:"releasedUntil,omitzero"` // an operator's, or after a decay: nothing is protected before that
	Ended         string    `json:"ended,omitempty"`        // why it ended the last time
	Times         int       `json:"times,omitempty"`        // how often it was protected
}

// Hold is an operator's word that the service stays protected.
type Hold struct {
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// ReleaseBody ends the protection.
type ReleaseBody struct {
	For string `json:"for,omitempty" example:"10m" doc:"Time without protection; 10m by default, 0s for none"`
}

func (b *ReleaseBody) wait() time.Duration {
	if b.For == "" {
		return ReleaseFor
	}
	d, _ := time.ParseDuration(b.For) // Validate has checked it
	return d
}

// Validate checks what the types cannot say.
func (b *ReleaseBody) Validate() *machines.Refusal {
	if b.For == "" {
		return nil
	}
	if d, err := time.ParseDuration(b.For); err != nil || d < 0 || d > 24*time.Hour {
		return machines.Invalid(machines.FieldError{Field: "for", Message: "must be a duration from 0s to 24h, such as 10m"})
	}
	return nil
}

// Validate refuses numbers that cannot be.
func (l *Losses) Validate() *machines.Refusal {
	switch {
	case l.Total < 0 || l.Expiring < 0 || l.Expiring > l.Total:
		return machines.Invalid(machines.FieldError{Field: "expiring", Message: fmt.Sprintf("must be from 0 to total, is %d of %d", l.Expiring, l.Total)})
	case l.Limit < 0 || l.Limit > 1:
		return machines.Invalid(machines.FieldError{Field: "limit", Message: "must be from 0 to 1"})
	}
	return nil
}

// Exceed reports whether so many expire at once that it is more likely that the registry cannot hear them: more than
// the limit, and at least [MinExpiring].
func (l *Losses) Exceed() bool {
	if l.Blind && l.Expiring > 0 {
		return true
	}
	return l.Expiring >= MinExpiring && float64(l.Expiring) > cmp.Or(l.Limit, DefaultLimit)*float64(l.Total)
}
