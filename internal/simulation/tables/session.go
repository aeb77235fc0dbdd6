package tables

// A connection as the database sees it: the messages of the protocol, and the transaction that they are about.

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/bcc94042/instar/internal/simulation/model/wire"
)

// message is one of a client, with its first byte; 0 is the one with which a connection begins.
type message struct {
	kind byte
	body []byte
}

type answer struct {
	what  string
	bytes []byte
}

type conn struct {
	s        *Server
	id       int
	end      *wire.Conn
	raw      []byte // of a message that is not complete
	begun    bool
	in       []message
	closing  bool
	out      []answer
	buf      []byte // what was answered in this round trip
	what     string
	params   map[string]string
	prepared map[string]*statement
	portal   *statement
	values   [][]byte
	formats  []int16 // of parameters
	results  []int16
	x        *txn
	skip     bool // until the next sync, after an error
	lingers  bool
	finished bool
}

// feed takes bytes of the client.
func (c *conn) feed(b []byte) error {
	c.raw = append(c.raw, b...)
	for {
		head := 1
		if !c.begun {
			head = 0
		}
		if len(c.raw) < head+4 {
			return nil
		}
		n := head + int(binary.BigEndian.Uint32(c.raw[head:]))
		if len(c.raw) < n {
			return nil
		}
		m := message{body: slices.Clone(c.raw[head+4 : n])}
		if c.begun {
			m.kind = c.raw[0]
		}
		c.begun = true
		c.raw = c.raw[n:]
		c.in = append(c.in, m)
	}
}

// upcoming is the name of what is executed next.
func (c *conn) upcoming() string {
	name := ""
	for _, m := range c.in {
		switch m.kind {
		case 0:
			return "connect"
		case 'Q':
			return simple(string(m.body[:len(m.body)-1]))
		case 'P':
			var p pgproto3.Parse
			if p.Decode(m.body) == nil {
				if s, err := find(p.Query); err == nil {
					name = "prepare " + s.name
				}
			}
		case 'B':
			var b pgproto3.Bind
			if b.Decode(m.body) == nil && c.prepared[b.PreparedStatement] != nil {
				name = c.prepared[b.PreparedStatement].name
			}
		case 'E':
			return name
		case 'S':
			if name == "" {
				name = "sync"
			}
			return name
		case 'X':
			return "close"
		}
	}
	return name
}

// simple is a short name of what is sent without parameters.
func simple(query string) string {
	if s, err := find(query); err == nil {
		return s.name
	}
	return strings.Join(strings.Fields(query)[:min(len(strings.Fields(query)), 2)], " ")
}

// step executes messages up to the next statement, or the end of the round trip.
func (c *conn) step() {
	for len(c.in) > 0 && !c.finished {
		m := c.in[0]
		done, waits := c.take(m)
		if waits {
			return
		}
		if len(c.in) > 0 {
			c.in = c.in[1:]
		}
		if done {
			return
		}
	}
}

// take takes one message, and says whether it was a step, or has to wait.
func (c *conn) take(m message) (done, waits bool) {
	if c.skip && m.kind != 'S' && m.kind != 'X' {
		return false, false
	}
	switch m.kind {
	case 0:
		c.start(m.body)
		return true, false
	case 'P':
		var p pgproto3.Parse
		c.must(p.Decode(m.body))
		s, err := find(p.Query)
		if err != nil {
			panic(err)
		}
		c.prepared[p.Name] = s
		c.send(&pgproto3.ParseComplete{})
	case 'D':
		var d pgproto3.Describe
		c.must(d.Decode(m.body))
		c.describe(&d)
	case 'B':
		var b pgproto3.Bind
		c.must(b.Decode(m.body))
		c.portal, c.values, c.formats, c.results = c.prepared[b.PreparedStatement], b.Parameters, b.ParameterFormatCodes, b.ResultFormatCodes
		c.send(&pgproto3.BindComplete{})
	case 'E':
		return true, c.execute(c.portal)
	case 'C':
		c.send(&pgproto3.CloseComplete{})
	case 'S':
		c.sync()
		return true, false
	case 'Q':
		return c.query(strings.TrimSuffix(string(m.body), "\x00"))
	case 'X':
		c.finish()
		return true, false
	case 'H':
	default:
		panic(fmt.Sprintf("tables: the message %q is not modelled", m.kind))
	}
	return false, false
}

func (c *conn) must(err error) {
	if err != nil {
		panic(fmt.Errorf("tables: a client sends what is no message: %w", err))
	}
}

func (c *conn) send(m pgproto3.BackendMessage) {
	b, err := m.Encode(c.buf)
	c.must(err)
	c.buf = b
}

// start answers the beginning of a connection; a request to cancel, which comes on one of its own, does nothing: the statement was executed, or waits for its connection to end.
func (c *conn) start(body []byte) {
	if len(body) >= 4 && binary.BigEndian.Uint32(body) == 80877102 {
		c.finish()
		return
	}
	var m pgproto3.StartupMessage
	c.must(m.Decode(body))
	c.params = m.Parameters
	c.send(&pgproto3.AuthenticationOk{})
	for _, p := range [][2]string{{"server_version", "15.18"}, {"client_encoding", "UTF8"}, {"standard_conforming_strings", "on"}, {"integer_datetimes", "on"}, {"TimeZone", "UTC"}} {
		c.send(&pgproto3.ParameterStatus{Name: p[0], Value: p[1]})
	}
	c.send(&pgproto3.BackendKeyData{ProcessID: uint32(c.id), SecretKey: []byte{0, 0, 0, 1}}) // #nosec G115 -- a few
	c.what = "connect"
	c.ready()
}

// ready ends a round trip.
func (c *conn) ready() {
	status := byte('I')
	if c.x != nil {
		status = 'T'
		if c.x.failed {
			status = 'E'
		}
	}
	c.send(&pgproto3.ReadyForQuery{TxStatus: status})
	if !c.closing {
		c.out = append(c.out, answer{c.what, c.buf})
	}
	c.buf, c.what = nil, ""
}

// transaction is the one that a statement belongs to.
func (c *conn) transaction() *txn {
	if c.x == nil {
		c.x = c.s.d.begin(false)
		c.x.async = c.params["synchronous_commit"] == "off"
	}
	return c.x
}

func (c *conn) sync() {
	c.skip = false
	if c.x != nil && !c.x.block {
		c.close(!c.x.failed)
	}
	c.ready()
}

func (c *conn) close(commit bool) {
	if commit {
		c.x.commit()
	} else {
		c.x.rollback()
	}
	c.x = nil
}

func (c *conn) finish() {
	if !c.finished {
		if c.x != nil {
			c.x.rollback()
			c.x = nil
		}
		c.finished, c.in, c.out = true, nil, nil
		c.end.End()
	}
}

func (c *conn) describe(d *pgproto3.Describe) {
	s := c.portal
	if d.ObjectType == 'S' {
		s, c.results = c.prepared[d.Name], nil
		var oids []uint32
		for _, p := range s.params {
			oids = append(oids, oid(c.s.types, p))
		}
		c.send(&pgproto3.ParameterDescription{ParameterOIDs: oids})
	}
	if len(s.columns) == 0 {
		c.send(&pgproto3.NoData{})
		return
	}
	c.send(c.row(s))
}

// row describes the rows of a statement.
func (c *conn) row(s *statement) *pgproto3.RowDescription {
	var d pgproto3.RowDescription
	for i, t := range s.columns {
		d.Fields = append(d.Fields, pgproto3.FieldDescription{Name: fmt.Appendf(nil, "c%d", i), DataTypeOID: oid(c.s.types, t), DataTypeSize: -1, TypeModifier: -1, Format: c.format(i)})
	}
	return &d
}

func (c *conn) format(i int) int16 {
	switch len(c.results) {
	case 0:
		return 0
	case 1:
		return c.results[0]
	}
	return c.results[i]
}

// arguments are the parameters of a statement.
func (c *conn) arguments(s *statement) (a args) {
	for i, t := range s.params {
		format := int16(0)
		if len(c.formats) == 1 {
			format = c.formats[0]
		} else if len(c.formats) > i {
			format = c.formats[i]
		}
		v, err := decode(c.s.types, t, format, c.values[i])
		if err != nil {
			panic(fmt.Errorf("tables: %s: parameter %d: %w", s.name, i+1, err))
		}
		a = append(a, v)
	}
	return a
}

// execute executes a statement, and says whether it has to wait.
func (c *conn) execute(s *statement) (waits bool) {
	c.what = s.name
	a, x := c.arguments(s), c.transaction()
	if x.failed {
		c.fail(refusal{"25P02", "current transaction is aborted, commands ignored until end of transaction block"})
		return false
	}
	var r result
	waits, failed := x.statement(func() { r = s.run(x, a) })
	switch {
	case waits && c.params["lock_timeout"] != "":
		x.failed, x.on = true, nil
		c.fail(refusal{"55P03", "canceling statement due to lock timeout"})
		return false
	case waits:
		return true
	case failed != nil:
		c.fail(*failed)
		return false
	}
	c.answer(s, r)
	return false
}

// answer sends what a statement returns.
func (c *conn) answer(s *statement, r result) {
	for _, row := range r.rows {
		if len(s.columns) == 0 {
			break
		}
		var d pgproto3.DataRow
		for i, v := range row {
			b, err := encode(c.s.types, s.columns[i], c.format(i), v)
			if err != nil {
				panic(fmt.Errorf("tables: %s: column %d: %w", s.name, i+1, err))
			}
			d.Values = append(d.Values, b)
		}
		c.send(&d)
	}
	c.send(&pgproto3.CommandComplete{CommandTag: []byte(s.tag(r))})
}

// fail ends a transaction but for its name: what it held is free.
func (c *conn) fail(r refusal) {
	if c.x != nil && !c.x.ended {
		c.x.rollback()
	}
	c.send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: r.code, Message: r.message})
	c.skip = true
}
