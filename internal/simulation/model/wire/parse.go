package wire

// What a client sends, one operation after the other: Feed takes bytes as they come, Next returns the operations that are complete. A publish is
// complete with its payload. What is no operation ends the connection, as a server ends it.

import (
	"bytes"
	"errors"
	"strconv"
)

// Kind is what an operation is.
type Kind uint8

// The operations of a client. A publish with headers is a Pub as well.
const (
	Connect Kind = iota + 1
	Ping
	Pong
	Sub
	Unsub
	Pub
)

// Op is one operation of a client. Its fields do not share memory with what was fed.
type Op struct {
	Kind         Kind
	Subject      string
	Reply        string // of a Pub
	Queue        string // of a Sub
	SID          string // of a Sub, Unsub
	Max          int    // of an Unsub: messages until it takes effect; 0 is at once
	Header, Data []byte // of a Pub: Header as on the wire, with its version line; Data of a Connect is its JSON
}

// Errors as a server says them, in an -ERR line.
var (
	//lint:ignore ST1005 the server's text
	ErrProtocol = errors.New("Unknown Protocol Operation")
	//lint:ignore ST1005 the server's text
	ErrPayload = errors.New("Maximum Payload Violation")
)

// maxLine is the server's bound of a line of the protocol, max_control_line.
const maxLine = 4096

// Parser reads the operations of one client.
type Parser struct {
	MaxPayload int // of headers and data; 0 is no bound

	buf []byte
	off int
}

// Feed adds bytes.
func (p *Parser) Feed(b []byte) {
	if p.off > 0 {
		p.buf = append(p.buf[:0], p.buf[p.off:]...)
		p.off = 0
	}
	p.buf = append(p.buf, b...)
}

// Next is the next operation that is complete. After an error nothing more is to be read.
func (p *Parser) Next() (op Op, ok bool, err error) {
	rest := p.buf[p.off:]
	end := bytes.IndexByte(rest, '\n')
	if end < 0 {
		if len(rest) > maxLine && !bytes.HasPrefix(rest, []byte("CONNECT")) {
			err = ErrProtocol
		}
		return Op{}, false, err
	}
	line := bytes.TrimSuffix(rest[:end], []byte("\r"))
	verb, args, _ := bytes.Cut(line, []byte(" "))
	size, head := -1, 0
	switch string(bytes.ToUpper(verb)) {
	case "PING":
		op.Kind = Ping
	case "PONG":
		op.Kind = Pong
	case "CONNECT":
		op.Kind, op.Data = Connect, bytes.Clone(bytes.TrimSpace(args))
	case "SUB":
		ok = op.sub(bytes.Fields(args))
	case "UNSUB":
		ok = op.unsub(bytes.Fields(args))
	case "PUB":
		size, ok = op.pub(bytes.Fields(args))
	case "HPUB":
		head, size, ok = op.hpub(bytes.Fields(args))
	}
	if op.Kind == 0 || op.Kind > Connect && op.Kind != Ping && op.Kind != Pong && !ok {
		return Op{}, false, ErrProtocol
	}
	p.off += end + 1
	if size < 0 {
		return op, true, nil
	}
	if p.MaxPayload > 0 && size > p.MaxPayload {
		return Op{}, false, ErrPayload
	}
	rest = rest[end+1:]
	if len(rest) < size+2 {
		p.off -= end + 1 // until the payload is there
		return Op{}, false, nil
	}
	if rest[size] != '\r' || rest[size+1] != '\n' {
		return Op{}, false, ErrProtocol
	}
	body := bytes.Clone(rest[:size])
	if head > 0 {
		op.Header = body[:head:head]
	}
	op.Data = body[head:]
	p.off += size + 2
	return op, true, nil
}

func (o *Op) sub(args [][]byte) bool {
	o.Kind = Sub
	switch len(args) {
	case 2:
	case 3:
		o.Queue = string(args[1])
	default:
		return false
	}
	o.Subject, o.SID = string(args[0]), string(args[len(args)-1])
	return true
}

func (o *Op) unsub(args [][]byte) bool {
	o.Kind = Unsub
	if len(args) < 1 || len(args) > 2 {
		return false
	}
	o.SID = string(args[0])
	if len(args) == 2 {
		n, err := strconv.Atoi(string(args[1]))
		if err != nil {
			return false
		}
		o.Max = max(n, 0)
	}
	return true
}

// pub is a subject, perhaps a reply, and the size.
func (o *Op) pub(args [][]byte) (size int, ok bool) {
	o.Kind = Pub
	if len(args) < 2 || len(args) > 3 {
		return 0, false
	}
	if len(args) == 3 {
		o.Reply = string(args[1])
	}
	o.Subject = string(args[0])
	size, ok = number(args[len(args)-1])
	return size, ok
}

func (o *Op) hpub(args [][]byte) (head, size int, ok bool) {
	if len(args) < 3 {
		o.Kind = Pub
		return 0, 0, false
	}
	head, ok = number(args[len(args)-2])
	if !ok {
		o.Kind = Pub
		return 0, 0, false
	}
	size, ok = o.pub(append(args[:len(args)-2:len(args)-2], args[len(args)-1]))
	return head, size, ok && head <= size
}

func number(b []byte) (int, bool) {
	n, err := strconv.ParseUint(string(b), 10, 31)
	return int(n), err == nil
}

// AppendMsg appends a message as a client gets it: HMSG where it has headers, else MSG.
func AppendMsg(b []byte, subject, sid, reply string, header, data []byte) []byte {
	if len(header) > 0 {
		b = append(b, 'H')
	}
	b = append(append(append(append(b, "MSG "...), subject...), ' '), sid...)
	b = append(b, ' ')
	if reply != "" {
		b = append(append(b, reply...), ' ')
	}
	if len(header) > 0 {
		b = append(strconv.AppendInt(b, int64(len(header)), 10), ' ')
	}
	b = strconv.AppendInt(b, int64(len(header)+len(data)), 10)
	b = append(append(append(b, "\r\n"...), header...), data...)
	return append(b, "\r\n"...)
}
