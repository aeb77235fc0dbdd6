package simulation

// The simulated server as the loop drives it: one packet or one delivery at a time.

import (
	"fmt"
	"net"
	"time"
)

// choice is one thing that may happen next.
type choice struct {
	packet int // of those that are pending
	conn   int // whose delivery it is, if packet is -1; 0 is a sync of a stream, which ends
	what   string
	data   []byte
}

// choices are what may happen next on connections that nothing holds up.
func (w *World) choices() []choice {
	held := w.heldUp()
	all := w.next[:0]
	for i, p := range w.server.Pending() {
		if !held[p.Conn] {
			all = append(all, choice{packet: i, conn: p.Conn, what: p.Subject, data: p.Data})
		}
	}
	for _, d := range w.server.Outbound() {
		if !held[d.Conn] {
			all = append(all, choice{packet: -1, conn: d.Conn, what: d.Subject, data: d.Data})
		}
	}
	for _, stream := range w.disk.UnderWay() {
		all = append(all, choice{packet: -1, what: stream})
	}
	w.next = all
	return all
}

func (w *World) choose(c choice) {
	if c.conn == 0 {
		w.trace.Step("disk", "has synced", c.what, nil)
		w.disk.End(c.what)
		return
	}
	who := w.owner(c.conn)
	if c.packet >= 0 {
		if w.seize(c) {
			return
		}
		w.trace.Step(who, "sends", c.what, c.data)
		w.server.Step(c.packet)
		return
	}
	w.trace.Step(who, "gets", c.what, c.data)
	w.server.Deliver(c.conn)
}

func (w *World) owner(conn int) string {
	if x := w.wireOf(conn); x != nil {
		return x.owner
	}
	return fmt.Sprint("connection ", conn)
}

// heldUp are the connections on which nothing is passed on for now.
func (w *World) heldUp() map[int]bool {
	if w.holds.Before(time.Now()) {
		return nil
	}
	held := map[int]bool{}
	for _, x := range w.wires {
		if x.held.After(time.Now()) {
			held[x.id] = true
		}
	}
	return held
}

// hold keeps everything on the connections of a process, or on one of them, for a time: it is slow, or stopped.
func (w *World) hold(x *wire, d time.Duration) {
	x.held = time.Now().Add(d)
	if x.held.After(w.holds) {
		w.holds = x.held
	}
}

// holdNode stops a process, for longer than its key lives: also the connections that it makes when those of before have broken.
func (w *World) holdNode(n *node, d time.Duration) {
	d += 4 * time.Second
	n.held = time.Now().Add(d)
	for _, x := range w.wires {
		if x.n == n {
			w.hold(x, d)
		}
	}
}

// cut breaks a connection. Some of what is on its way to the server arrives yet.
func (w *World) cut(x *wire, lose bool) {
	w.server.Kill(x.id, lose)
	for i := range w.wires {
		if w.wires[i] == x {
			w.wires = append(w.wires[:i:i], w.wires[i+1:]...)
			return
		}
	}
}

// connect makes a connection.
func (w *World) connect(owner string, n *node) (net.Conn, error) {
	if w.serverDown || w.restoring && owner != "operator" {
		return nil, errServerDown
	}
	w.dials.Lock()
	defer w.dials.Unlock()
	c, id := w.server.Dial()
	x := &wire{id: id, owner: owner, n: n}
	if n != nil {
		x.held = n.held
	}
	w.wires = append(w.wires, x)
	return w.wake.Link(c), nil
}
