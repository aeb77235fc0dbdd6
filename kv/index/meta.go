package index

// From the bytes of a value to its Meta. DescribeJSON finds the members that describe an entity with package jsonscan and decodes only those. The server
// calls it in the describe function that it gives to New, which Index.describeAll calls for each update; a describe function of one's own may add Meta.Value.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/bcc94042/instar/internal/jsonscan"
)

// Meta is what an index keeps of a value.
type Meta struct {
	Schema              int
	State               string
	Version, Generation uint64
	Since               time.Time
	CreatedAt           time.Time
	UpdatedAt           time.Time
	Labels              map[string]string

	// Value is what the index is to keep beside the rest, for [Item.Value]: a describe of one's own may decode here what
	// its readers need. It is shared by all of them and must not be changed afterwards. nil keeps nothing.
	Value any
}

// DescribeJSON reads the members schema, state, version, generation, since, createdAt, updatedAt and labels of a JSON
// object, and of the rest only checks that it is valid. It reads them as encoding/json does, but names must match
// exactly. Members that are missing or null are zero. Those members of its member data that are selected, texts, are
// labels of names such as .data.type, which [Item.Labels] does not have.
func DescribeJSON(value []byte, selected ...string) (Meta, error) {
	var m Meta
	var raw [9][]byte
	err := jsonscan.Object(value, func(name, tok []byte) error {
		if f := field(name); f >= 0 {
			raw[f] = tok // of a name that comes twice, the last one counts
		}
		return nil
	})
	if err != nil {
		return Meta{}, fmt.Errorf("not a valid object: %w", err)
	}
	if m.Schema, err = integer(raw[0]); err != nil {
		return Meta{}, fmt.Errorf("cannot read schema: %w", err)
	}
	if m.State, err = text(raw[1]); err != nil {
		return Meta{}, fmt.Errorf("cannot read state: %w", err)
	}
	for i, p := range [...]*uint64{&m.Version, &m.Generation} {
		if *p, err = number(raw[2+i]); err != nil {
			return Meta{}, fmt.Errorf("cannot read %s: %w", fields[2+i], err)
		}
	}
	for i, p := range [...]*time.Time{&m.Since, &m.CreatedAt, &m.UpdatedAt} {
		if raw[4+i] == nil {
			continue
		}
		if err = p.UnmarshalJSON(raw[4+i]); err != nil {
			return Meta{}, fmt.Errorf("cannot read %s: %w", fields[4+i], err)
		}
	}
	if m.Labels, err = texts(raw[7]); err != nil {
		return Meta{}, fmt.Errorf("cannot read labels: %w", err)
	}
	if len(selected) > 0 && !absent(raw[8]) {
		if err = m.selectBy(raw[8], selected); err != nil {
			return Meta{}, fmt.Errorf("cannot read data: %w", err)
		}
	}
	return m, nil
}

// DataLabel is what names of labels begin with that are members of the data, and no labels of the entity: none of those begins with a full stop.
const DataLabel = ".data."

func (m *Meta) selectBy(data []byte, selected []string) error {
	return jsonscan.Object(data, func(name, tok []byte) error {
		if !slices.Contains(selected, string(name)) {
			return nil
		}
		value, err := text(tok)
		if err != nil || value == "" {
			return err
		}
		if m.Labels == nil {
			m.Labels = make(map[string]string, len(selected))
		}
		m.Labels[DataLabel+string(name)] = value
		return nil
	})
}

var fields = [...]string{"schema", "state", "version", "generation", "since", "createdAt", "updatedAt", "labels", "data"}

// field is the place of the name in fields, or -1.
func field(name []byte) int {
	switch string(name) {
	case "schema":
		return 0
	case "state":
		return 1
	case "version":
		return 2
	case "generation":
		return 3
	case "since":
		return 4
	case "createdAt":
		return 5
	case "updatedAt":
		return 6
	case "labels":
		return 7
	case "data":
		return 8
	}
	return -1
}

func absent(tok []byte) bool { return len(tok) == 0 || tok[0] == 'n' }

func integer(tok []byte) (int, error) {
	if absent(tok) {
		return 0, nil
	}
	return strconv.Atoi(string(tok))
}

func number(tok []byte) (uint64, error) {
	if absent(tok) {
		return 0, nil
	}
	return strconv.ParseUint(string(tok), 10, 64)
}

func text(tok []byte) (string, error) {
	if absent(tok) {
		return "", nil
	}
	if tok[0] != '"' {
		return "", errors.New("not a string")
	}
	return jsonscan.Unquote(tok)
}

// texts decodes a valid object token of strings.
func texts(tok []byte) (map[string]string, error) {
	if absent(tok) {
		return nil, nil
	}
	if tok[0] != '{' {
		return nil, errors.New("not an object")
	}
	m := make(map[string]string)
	err := jsonscan.Object(tok, func(name, v []byte) (err error) {
		m[string(name)], err = text(v)
		return err
	})
	return m, err
}
