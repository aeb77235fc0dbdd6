package domain

import (
	"time"

	machine "github.com/bcc94042/instar/machines/domain"
)

// News is what a look at a certificate has found that is to be told.
type News int

// What there is to tell.
const (
	Nothing   News = iota
	Renewed        // it is another one than is known, or in order again
	Unrenewed      // why it is not renewed is another reason than is known
)

// glances is the time between two looks at a certificate with which nothing is to be done, and renewing that between two at one that is being renewed.
const glances, renewing = 10 * time.Minute, 15 * time.Second

// Seen is what there is of the certificate of a name, as [Issuer] has it: of domains, and of whose names are served beside them.
type Seen struct {
	Has     *machine.Certificate // nil where there is none, or it cannot be read
	Due     time.Time            // for renewal
	Trouble string               // why the last renewal has failed, or it cannot be read
}

// Beside compares it with the serial number and the problem that are known, and says when to look again where there is nothing to tell.
func (s *Seen) Beside(serial, problem string, now time.Time) (news News, until time.Time) {
	switch {
	case s.Has != nil && (s.Has.Serial != serial || problem != "" && s.Trouble == "" && now.Before(s.Due)):
		return Renewed, time.Time{}
	case s.Trouble != "" && s.Trouble != problem:
		return Unrenewed, time.Time{}
	case now.Before(s.Due):
		return Nothing, now.Add(min(glances, s.Due.Sub(now)))
	case s.Has == nil:
		return Nothing, now.Add(renewing)
	}
	return Nothing, now.Add(min(renewing, max(s.Has.NotAfter.Sub(now)/8, 0)))
}
