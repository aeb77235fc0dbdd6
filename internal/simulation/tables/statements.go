package tables

// Which statements there are, with the types of their parameters and columns, and how values of those are read and written.

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Each statement is two lines: its name with the types of its parameters and of its columns, and its text without line breaks, as it is sent.
//
//go:embed statements.sql
var texts string

// statement is one that is known.
type statement struct {
	name, text, verb string
	params, columns  []string // types
	run              func(x *txn, a args) result
}

// result is what a statement returns.
type result struct {
	rows [][]any
	n    int // rows that it changed, or returns
}

// args are the parameters of a statement. Those that are null are nil, and empty as what they are read as.
type args []any

func read[T any](a args, i int) (v T) {
	v, _ = a[i].(T) // decoded by the type of the parameter, or nil
	return v
}

func (a args) int(i int) int64        { return read[int64](a, i) }
func (a args) float(i int) float64    { return read[float64](a, i) }
func (a args) text(i int) string      { return read[string](a, i) }
func (a args) flag(i int) bool        { return read[bool](a, i) }
func (a args) bytes(i int) []byte     { return read[[]byte](a, i) }
func (a args) id(i int) id            { return read[id](a, i) }
func (a args) time(i int) time.Time   { return read[time.Time](a, i) }
func (a args) ints(i int) []int64     { return read[[]int64](a, i) }
func (a args) floats(i int) []float64 { return read[[]float64](a, i) }
func (a args) texts(i int) []string   { return read[[]string](a, i) }
func (a args) flags(i int) []bool     { return read[[]bool](a, i) }
func (a args) ids(i int) []id         { return read[[]id](a, i) }

// known are the statements by their texts, with white space as one blank.
var known = parse()

func parse() map[string]*statement {
	all := map[string]*statement{}
	for block := range strings.SplitSeq(strings.TrimSpace(texts), "\n\n") {
		head, text, _ := strings.Cut(block, "\n")
		name, types, _ := strings.Cut(strings.TrimPrefix(head, "-- "), " (")
		params, columns, _ := strings.Cut(types, ") (")
		s := &statement{name: name, text: text, params: strings.Fields(params), columns: strings.Fields(strings.TrimSuffix(columns, ")")), run: functions[name]}
		s.verb = verb(text)
		if s.run == nil {
			panic("tables: no function answers " + name)
		}
		all[text] = s
	}
	return all
}

// find is the statement of a text, or an error that names it.
func find(text string) (*statement, error) {
	if s := known[strings.Join(strings.Fields(text), " ")]; s != nil {
		return s, nil
	}
	return nil, fmt.Errorf("tables: the model does not know this statement; add it to statements.sql, with a function: %s", text)
}

// verb is that of the statement, behind what it begins with.
func verb(text string) string {
	depth := 0
	for word := range strings.FieldsSeq(text) {
		if v := strings.ToUpper(word); depth == 0 && (v == "SELECT" || v == "INSERT" || v == "UPDATE" || v == "DELETE") {
			return v
		}
		depth += strings.Count(word, "(") - strings.Count(word, ")")
	}
	return ""
}

// tag is what the command complete message says.
func (s *statement) tag(r result) string {
	n := max(r.n, len(r.rows))
	if s.verb == "INSERT" {
		return fmt.Sprintf("INSERT 0 %d", n)
	}
	return fmt.Sprintf("%s %d", s.verb, n)
}

// oid is that of a type by its name.
func oid(m *pgtype.Map, name string) uint32 {
	switch name {
	case "void":
		return 2278
	case "pg_lsn":
		return 3220
	}
	if base, ok := strings.CutSuffix(name, "[]"); ok {
		name = "_" + base
	}
	t, ok := m.TypeForName(name)
	if !ok {
		panic("tables: there is no type " + name)
	}
	return t.OID
}

// decode reads a parameter.
func decode(m *pgtype.Map, typ string, format int16, src []byte) (any, error) {
	if src == nil {
		return nil, nil
	}
	o := oid(m, typ)
	switch typ {
	case "int2", "int4", "int8":
		return scan[int64](m, o, format, src)
	case "float8":
		return scan[float64](m, o, format, src)
	case "text":
		return scan[string](m, o, format, src)
	case "jsonb":
		b, err := scan[[]byte](m, o, format, src)
		if err != nil {
			return nil, err
		}
		return string(b.([]byte)), nil
	case "bytea":
		return scan[[]byte](m, o, format, src)
	case "bool":
		return scan[bool](m, o, format, src)
	case "uuid":
		v, err := scan[pgtype.UUID](m, o, format, src)
		if err != nil {
			return nil, err
		}
		return id(v.(pgtype.UUID).Bytes), nil
	case "timestamptz":
		return scan[time.Time](m, o, format, src)
	}
	return decodeList(m, typ, o, format, src)
}

func decodeList(m *pgtype.Map, typ string, o uint32, format int16, src []byte) (any, error) {
	switch typ {
	case "int2[]", "int8[]":
		return scan[[]int64](m, o, format, src)
	case "float8[]":
		return scan[[]float64](m, o, format, src)
	case "text[]":
		return scan[[]string](m, o, format, src)
	case "bool[]":
		return scan[[]bool](m, o, format, src)
	case "bytea[]":
		return scan[[][]byte](m, o, format, src)
	case "jsonb[]":
		return scan[[]string](m, o, format, src)
	case "timestamptz[]":
		list, err := scan[[]*time.Time](m, o, format, src)
		if err != nil {
			return nil, err
		}
		var all []time.Time
		for _, t := range list.([]*time.Time) {
			if t == nil {
				t = &time.Time{}
			}
			all = append(all, *t)
		}
		return all, nil
	case "uuid[]":
		list, err := scan[[]pgtype.UUID](m, o, format, src)
		if err != nil {
			return nil, err
		}
		all := []id{}
		for _, v := range list.([]pgtype.UUID) {
			all = append(all, id(v.Bytes))
		}
		return all, nil
	}
	return nil, fmt.Errorf("tables: a parameter of type %s is not modelled", typ)
}

func scan[T any](m *pgtype.Map, o uint32, format int16, src []byte) (any, error) {
	var v T
	err := m.Scan(o, format, src, &v)
	return v, err
}

// encode writes a column. Times that are zero are null.
func encode(m *pgtype.Map, typ string, format int16, v any) ([]byte, error) {
	switch x := v.(type) {
	case uuid.UUID:
		v = pgtype.UUID{Bytes: x, Valid: true}
	case time.Time:
		switch {
		case x.IsZero():
			return nil, nil
		case x.Equal(infinity):
			v = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}
		}
	case *string:
		if x == nil {
			return nil, nil
		}
		v = *x
	case nil:
		return nil, nil
	}
	if typ == "void" || typ == "pg_lsn" {
		typ = "text"
	}
	return m.Encode(oid(m, typ), format, v, make([]byte, 0, 16))
}
