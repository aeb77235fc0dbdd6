package embedded

import "fmt"

// Profile says what an acknowledged write survives.
type Profile string

// The profiles.
const (
	Fsync    Profile = "fsync"    // power loss: every write is fsynced before it is answered, in groups; see Server.Syncer
	Interval Profile = "interval" // kill -9; power loss up to 100 ms and the time of a sync, from all streams alike
	OS       Profile = "os"       // kill -9; power loss up to 2 minutes
)

// ParseProfile reads the name of a profile.
func ParseProfile(s string) (Profile, error) {
	switch p := Profile(s); p {
	case Fsync, Interval, OS:
		return p, nil
	}
	return "", fmt.Errorf("streams: durability %q is none of fsync, interval, os", s)
}

// Survives is the profile in words.
func (p Profile) Survives() string {
	switch p {
	case Fsync:
		return "power loss: every write is on disk before it is answered"
	case Interval:
		return "kill -9; a power loss may cost the last 100 ms, and what was written while the disk synced"
	}
	return "kill -9; a power loss may cost the last 2 minutes"
}
