package database

import (
	"encoding/json"
	"fmt"
	"strings"

	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/mover"
	"github.com/bcc94042/instar/providers/database/pg"
)

// mostTold is how many tables, and ranges of each, are told of a comparison.
const mostTold = 20

// unequalError says which tables are not the same.
type unequalError struct {
	message string
	tables  []machine.Discrepancy
}

func (e *unequalError) Error() string { return e.message }
func (e *unequalError) Unwrap() error { return &pg.LaterError{Message: e.message} }

// details are those of the failure.
func (e *unequalError) details() json.RawMessage {
	raw, _ := json.Marshal(machine.Details{Discrepancies: e.tables[:min(len(e.tables), mostTold)]}) // it always marshals
	return raw
}

// discrepancies are those of a comparison of ranges, as the session keeps them.
func discrepancies(of []mover.Discrepancy) (list []machine.Discrepancy) {
	for _, d := range of[:min(len(of), mostTold)] {
		list = append(list, machine.Discrepancy{Table: d.Table, Type: d.Type, Source: d.Source.Rows, Target: d.Target.Rows, Ranges: d.Ranges[:min(len(d.Ranges), mostTold)], Repaired: d.Repaired})
	}
	return list
}

// unequal is an error where tables are not the same.
func unequal(v *mover.Verified) error {
	open := v.Open()
	if len(open) == 0 {
		return nil
	}
	names := make([]string, len(open))
	for i, d := range open {
		names[i] = fmt.Sprintf("%s (%s: %d rows in the source, %d in the target)", d.Table, d.Type, d.Source.Rows, d.Target.Rows)
	}
	return &unequalError{fmt.Sprintf("%d tables are not the same: %s", len(open), strings.Join(names, ", ")), discrepancies(open)}
}

// differing is the error where single rows are not the same.
func differing(left []*mover.Keys) error {
	e := &unequalError{message: fmt.Sprintf("%d tables are not the same: %s", len(left), told(left))}
	for _, k := range left {
		e.tables = append(e.tables, machine.Discrepancy{Table: k.Table.String(), Type: mover.ChecksumMismatch, Rows: k.Len()})
	}
	return e
}
