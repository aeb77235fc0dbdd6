package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/klauspost/compress/zstd"
)

// ErrIncomplete says that a file ends before its backup does, or has lost something.
var ErrIncomplete = errors.New("the backup is not complete")

// Check reads a backup to its end, and says what it is. It fails for one that is damaged, not complete, or of a newer program.
func Check(r io.Reader) (Head, End, error) {
	in, err := open(r)
	if err != nil {
		return Head{}, End{}, err
	}
	defer in.close()
	for {
		_, err := in.next()
		if errors.Is(err, io.EOF) {
			return in.head, in.end, nil
		}
		if err != nil {
			return in.head, in.end, err
		}
	}
}

// reader gives the lines between head and end, and counts them.
type reader struct {
	z     *zstd.Decoder
	json  *json.Decoder
	head  Head
	end   End
	at    *Section
	found map[string]int

	unread *line // the one that a snapshot ended at
	ended  error // or what came instead
}

func open(r io.Reader) (*reader, error) {
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	in := &reader{z: z, json: json.NewDecoder(z), found: map[string]int{}}
	var first line
	err = in.json.Decode(&first)
	switch {
	case err == nil && first.Head != nil && first.Head.Format == Format:
		in.head = *first.Head
		return in, nil
	case err == nil && first.Head != nil && first.Head.Format > Format:
		err = fmt.Errorf("backup: the file has format %d, this program knows %d: use the one that made it, %s", first.Head.Format, Format, first.Head.Version)
	default:
		err = fmt.Errorf("backup: the file is no backup, or its beginning is damaged: %w", errors.Join(err, ErrIncomplete))
	}
	z.Close()
	return nil, err
}

func (r *reader) close() { r.z.Close() }

// part is the next one of a snapshot, or nil after the last.
func (r *reader) part() ([]byte, error) {
	l, err := r.next()
	if err == nil && l.Part != nil {
		return l.Part, nil
	}
	if r.unread, r.ended = l, err; errors.Is(err, io.EOF) {
		err = nil
	}
	return nil, err
}

// next is a section, a message or a part; io.EOF is a backup that is complete.
func (r *reader) next() (*line, error) {
	if l, err := r.unread, r.ended; l != nil || err != nil {
		r.unread, r.ended = nil, nil
		return l, err
	}
	l := new(line)
	if err := r.json.Decode(l); err != nil {
		return nil, fmt.Errorf("backup: %w: %w", ErrIncomplete, noEOF(err))
	}
	switch {
	case l.Section != nil:
		r.at = l.Section
		r.found[r.at.Stream] += 0
	case r.at != nil && (l.Message != nil || l.Part != nil):
		r.found[r.at.Stream]++
	case l.End != nil:
		r.end = *l.End
		if !maps.Equal(r.found, r.end.Messages) {
			return nil, fmt.Errorf("backup: %w: it has other messages than its end says", ErrIncomplete)
		}
		if _, err := r.json.Token(); !errors.Is(err, io.EOF) { // the checksum of the file is behind it
			return nil, fmt.Errorf("backup: %w: something follows its end: %w", ErrIncomplete, err)
		}
		return nil, io.EOF
	default:
		return nil, fmt.Errorf("backup: %w: a line is none of a backup", ErrIncomplete)
	}
	return l, nil
}

// noEOF is for an end that comes too early: it must not be taken for the right one.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
