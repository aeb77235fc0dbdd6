package outbox

import "cmp"

// Waker tells the relay of a source that rows were committed, so that it need not wait for its next poll. It is a hint: a
// relay that does not get it polls.
type Waker struct {
	Source string // name of the database, as the relay's configuration has it
	Prefix string // of all subjects; instar

	NATS interface { // a *nats.Conn; nil tells nobody elsewhere
		Publish(subject string, data []byte) error
	}
	Local func() // wakes a relay in this process; nil when there is none
}

// Subject is where a relay of the source listens: instar.outbox.wake.<source>, on core NATS.
func (w *Waker) Subject() string {
	return cmp.Or(w.Prefix, "instar") + ".outbox.wake." + w.Source // as relay.WakeSubject; applications do not import the server
}

// Wake is called after a commit. It does not wait, and errors do not matter.
func (w *Waker) Wake() {
	if w.Local != nil {
		w.Local()
	}
	if w.NATS != nil {
		_ = w.NATS.Publish(w.Subject(), nil) // the poll is behind it
	}
}
