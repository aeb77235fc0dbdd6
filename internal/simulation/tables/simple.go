package tables

// What a client sends without parameters, in one message: statements of a transaction, and those of a relay that have none.

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// query executes what is sent without parameters.
func (c *conn) query(text string) (done, waits bool) {
	switch words := strings.Fields(strings.ToLower(text)); {
	case len(words) == 0 || words[0] == "--" || words[0] == ";":
		c.send(&pgproto3.EmptyQueryResponse{})
	case words[0] == "begin":
		c.transaction().block = true
		c.send(&pgproto3.CommandComplete{CommandTag: []byte("BEGIN")})
	case words[0] == "commit", words[0] == "rollback":
		tag := "ROLLBACK"
		if c.x != nil {
			if commit := words[0] == "commit" && !c.x.failed; commit {
				tag = "COMMIT"
			}
			c.close(tag == "COMMIT")
		}
		c.send(&pgproto3.CommandComplete{CommandTag: []byte(tag)})
	case strings.Contains(text, "current_setting('instar.session', true)"):
		c.beginning()
	default:
		return true, c.simple(text)
	}
	c.what = simple(text)
	c.ready()
	return true, false
}

// beginning answers what a session of the outbox begins with: three statements, of which the last one gives back a parameter of the connection.
func (c *conn) beginning() {
	text := func(rows ...string) {
		c.send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("set_config"), DataTypeOID: 25, DataTypeSize: -1, TypeModifier: -1}}})
		for _, r := range rows {
			c.send(&pgproto3.DataRow{Values: [][]byte{[]byte(r)}})
		}
		c.send(&pgproto3.CommandComplete{CommandTag: fmt.Appendf(nil, "SELECT %d", len(rows))})
	}
	text()
	text()
	text(c.params["instar.session"])
	if c.params["synchronous_commit"] == "off" {
		delete(c.params, "synchronous_commit")
	}
}

// simple executes a statement without parameters, which is a transaction of its own outside of a block.
func (c *conn) simple(text string) (waits bool) {
	s, err := find(text)
	if err != nil || len(s.params) > 0 {
		panic(errors.Join(errors.New("tables: not modelled without parameters: "+text), err))
	}
	c.values, c.formats, c.results = nil, nil, nil
	before := len(c.buf)
	if len(s.columns) > 0 {
		c.send(c.row(s))
	}
	if c.execute(s) {
		c.buf = c.buf[:before]
		return true
	}
	c.sync()
	return false
}
