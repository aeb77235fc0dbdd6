package backup

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/bcc94042/instar/streams"
)

// A file is not to be trusted with more than the streams of its plan.

// fits refuses what would be found out only when much is stored.
func (r *restorer) fits(h Head) error {
	planned := r.s.planned()
	for name, schema := range h.Schemas {
		if of := r.machine(name); of == nil {
			return fmt.Errorf("the backup has entities of the machine %s, which this program does not have: use the one that made it, %s", name, h.Version)
		} else if schema > of.Schema() {
			return fmt.Errorf("the backup has values of %s of schema %d, this program knows up to %d: use the one that made it, %s", name, schema, of.Schema(), h.Version)
		}
	}
	for _, name := range r.s.Without {
		if !slices.Contains(h.Others, name) {
			return fmt.Errorf("the backup has no stream %s to leave out: beside those of Instar it is of %s", name, cmp.Or(strings.Join(h.Others, ", "), "none"))
		}
	}
	for _, name := range h.Others {
		if planned[name] && !slices.Contains(r.s.Without, name) {
			return strayed(name)
		}
		if r.s.Shared && !slices.Contains(r.s.Others, name) && !slices.Contains(r.s.Without, name) {
			return fmt.Errorf("the backup has the stream %s, which is none of this configuration, and what is not of Instar is not put into the account of another server: leave it out by --without %s (nats stream backup can bring it over), or add the outbox that it is of", name, name)
		}
	}
	return nil
}

// strayed is about a bucket of the installation that is in a backup as a stream of somebody else. Its values could not be restored above the versions and revisions of before.
func strayed(name string) error {
	return fmt.Errorf("the backup has the bucket %s of this installation as it has streams of others, because the process that made it did not have its machine: take another backup, or leave the bucket out by --without %s", name, name)
}

// planned refuses a section that no backup of this plan has: a file must not write where somebody else does.
func (r *restorer) planned(s *Section) error {
	ok := slices.ContainsFunc(r.s.sections(), func(own Section) bool {
		return own.Stream == s.Stream && own.Kind == s.Kind && own.Machine == s.Machine
	})
	if s.Kind == KindSnapshot {
		ok = slices.Contains(r.in.head.Others, s.Stream) && s.Snapshot != nil
	}
	if !ok {
		return fmt.Errorf("the backup has a section %s of kind %q, which this program does not know", s.Stream, s.Kind)
	}
	return nil
}

// below refuses a message of the section under way that is not under the subjects of its stream.
func (r *restorer) below(m *Message) error {
	n, stream := r.s.Plan.Names, r.in.at.Stream
	var prefix string
	switch bucket, isBucket := streams.BucketOf(stream); {
	case isBucket:
		prefix = streams.BucketSubject(bucket, "")
	case stream == n.Stream(streams.EventStream):
		prefix = strings.TrimSuffix(n.Event(">", "", ""), ">..")
	default:
		prefix = strings.TrimSuffix(n.Dead(">", "", ""), ">..")
	}
	if rest, ok := strings.CutPrefix(m.Subject, prefix); !ok || rest == "" || strings.ContainsAny(rest, "*> \t\r\n\x00") || strings.Contains("."+rest+".", "..") {
		return fmt.Errorf("the backup has a message under %q in the section %s: somebody has changed it", m.Subject, stream)
	}
	return nil
}
