package backup

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/s2"
	"github.com/nats-io/nats-server/v2/server/archive"
)

// sourced are the parts of a snapshot of a stream that sources others, without the identities of those. The server goes on behind the last message that a stream has of
// another one, which its header tells, unless that is another stream by its identity, which is its time of creation: then it begins again, and stores all a second
// time. A snapshot does not have the time, so a stream that is restored is another one. Where its sequences are those of before, the stream that sources it goes on
// if it does not know whom its messages are from.
type sourced struct {
	from map[string]bool // those of the streams that it has messages of, when the last part was given

	origins []string

	raw  io.Reader // of a snapshot in an older format, which has no identities
	in   *archive.Reader
	out  *archive.Writer
	z    *s2.Writer
	part bytes.Buffer
	end  bool
}

const (
	headerSource = "\r\nNats-Stream-Source: " // stream, sequence, filter, destination, subject, identity
	partBytes    = 128 << 10                  // as the server sends them
)

// newSourced reads the parts of a snapshot up to a nil one. It leaves out the identities of these streams.
func newSourced(next func() ([]byte, error), origins []string) (*sourced, error) {
	var seen bytes.Buffer
	parts := &partReader{next: next}
	magic := make([]byte, len(archive.MagicBytes))
	_, err := io.ReadFull(s2.NewReader(io.TeeReader(parts, &seen)), magic)
	all := io.MultiReader(&seen, parts)
	s := &sourced{from: map[string]bool{}, origins: origins}
	if err != nil || string(magic) != string(archive.MagicBytes) {
		s.raw = all // the server says what is wrong with it
		return s, parts.err
	}
	s.z = s2.NewWriter(&s.part, s2.WriterConcurrency(1)) // it writes nothing by itself
	s.in, s.out = archive.NewReader(s2.NewReader(all)), archive.NewWriter(s.z)
	return s, nil
}

// next is the next part, or nil after the last.
func (s *sourced) next() ([]byte, error) {
	for s.part.Len() < partBytes && !s.end {
		if err := s.more(); err != nil {
			return nil, err
		}
	}
	if s.part.Len() == 0 {
		return nil, nil
	}
	return bytes.Clone(s.part.Next(partBytes)), nil
}

func (s *sourced) more() error {
	if s.raw != nil {
		n, err := io.CopyN(&s.part, s.raw, partBytes)
		if s.end = errors.Is(err, io.EOF); s.end || n > 0 && err == nil {
			return nil
		}
		return err
	}
	h, err := s.in.Next()
	if errors.Is(err, io.EOF) {
		s.end = true
		return errors.Join(s.out.Close(), s.z.Close())
	}
	if err != nil {
		return err
	}
	data, err := io.ReadAll(s.in)
	if err != nil {
		return err
	}
	if h.Sequence > 0 && h.HeaderSize > 0 && h.HeaderSize <= int64(len(data)) {
		header := s.anonymous(data[:h.HeaderSize])
		data = append(header, data[h.HeaderSize:]...)
		h.HeaderSize = int64(len(header))
	}
	if err := s.out.WriteHeader(h); err != nil {
		return err
	}
	_, err = s.out.Write(data)
	return err
}

// anonymous is the header of a message without the identity of the stream that it was sourced from.
func (s *sourced) anonymous(header []byte) []byte {
	before, rest, ok := bytes.Cut(header, []byte(headerSource))
	if !ok {
		return bytes.Clone(header)
	}
	value, after, _ := bytes.Cut(rest, []byte("\r\n"))
	fields := strings.Split(string(value), " ")
	if slices.Contains(s.origins, fields[0]) {
		s.from[fields[0]] = true
		fields = fields[:min(len(fields), 5)]
	}
	return bytes.Join([][]byte{before, []byte(headerSource), []byte(strings.Join(fields, " ")), []byte("\r\n"), after}, nil)
}

// partReader reads parts up to a nil one, and asks for none behind that.
type partReader struct {
	next func() ([]byte, error)
	left []byte
	err  error
	end  bool
}

func (p *partReader) Read(b []byte) (int, error) {
	for len(p.left) == 0 && !p.end && p.err == nil {
		p.left, p.err = p.next()
		p.end = p.left == nil
	}
	switch {
	case p.err != nil:
		return 0, p.err
	case len(p.left) == 0:
		return 0, io.EOF
	}
	n := copy(b, p.left)
	p.left = p.left[n:]
	return n, nil
}
