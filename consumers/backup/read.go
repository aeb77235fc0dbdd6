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
	from  *source
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
	from := &source{r: r}
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	in := &reader{from: from, z: z, json: json.NewDecoder(z), found: map[string]int{}}
	var first line
	err = in.json.Decode(&first)
	switch {
	case err == nil && first.Head != nil && first.Head.Format == Format:
		in.head = *first.Head
		return in, nil
	case err == nil && first.Head != nil && first.Head.Format > Format:
		err = fmt.Errorf("backup: the file has format %d, this program knows %d: use the one that made it, %s", first.Head.Format, Format, first.Head.Version)
	default:
		err = fmt.Errorf("backup: the file is no backup, or its beginning is damaged: %w", in.broken(err))
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
		return nil, fmt.Errorf("backup: %w", r.broken(err))
	}
	switch {
	case l.Section != nil:
		if err := r.other(l.Section); err != nil {
			return nil, fmt.Errorf("backup: %w", err)
		}
		r.at = l.Section
		r.found[r.at.Stream] += 0
	case r.at != nil && (l.Message != nil || l.Part != nil):
		r.found[r.at.Stream]++
	case l.End != nil:
		l.End.Others = r.end.Others
		r.end = *l.End
		if !maps.Equal(r.found, r.end.Messages) {
			return nil, fmt.Errorf("backup: %w: it has other messages than its end says", ErrIncomplete)
		}
		switch _, err := r.json.Token(); { // the checksum of the file is behind it
		case err == nil:
			return nil, fmt.Errorf("backup: %w: something follows its end", ErrIncomplete)
		case !errors.Is(err, io.EOF):
			return nil, fmt.Errorf("backup: %w", r.broken(err))
		}
		return nil, io.EOF
	default:
		return nil, fmt.Errorf("backup: %w: a line is none of a backup", ErrIncomplete)
	}
	return l, nil
}

// broken says what it means that a line cannot be read: the file could not be, or ends too early, or is damaged.
func (r *reader) broken(err error) error {
	switch {
	case r.from.err != nil:
		return fmt.Errorf("it cannot be read behind byte %d: %w", r.from.n, r.from.err)
	case err == nil:
		return ErrIncomplete
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF): // not the right end
		return fmt.Errorf("%w: it ends at byte %d, too early", ErrIncomplete, r.from.n)
	}
	return fmt.Errorf("%w: it is damaged before byte %d (%w)", ErrIncomplete, r.from.n, err)
}

// source is what a backup is read from. It remembers why no more came.
type source struct {
	r   io.Reader
	n   int64
	err error // but for the end
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if s.n += int64(n); err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
