package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxLine is the longest line of a stream: a snapshot of many thousand instances.
const maxLine = 64 << 20

// event is a server-sent event. One without a name only moves the id.
type event struct {
	id, name string
	data     []byte
}

// readEvents calls each for every event until the stream ends or each fails, and alive for every line.
func readEvents(r io.Reader, alive func(), each func(event) error) error {
	b := bufio.NewReaderSize(r, 32<<10)
	var ev event
	var has bool
	for {
		line, err := readLine(b)
		if err != nil {
			return err
		}
		alive()
		if len(line) == 0 {
			if has {
				if err := each(ev); err != nil {
					return err
				}
			}
			ev, has = event{}, false
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "id":
			ev.id, has = string(value), true
		case "event":
			ev.name, has = string(value), true
		case "data":
			if ev.data != nil {
				ev.data = append(ev.data, '\n')
			}
			ev.data, has = append(ev.data, value...), true
		}
	}
}

// readLine reads a line without its end.
func readLine(b *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := b.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, errors.New("a line of the watch is too long")
		}
		line = append(line, part...)
		if err == nil {
			return bytes.TrimRight(line, "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}
