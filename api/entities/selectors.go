package entities

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
)

const mostSelectors = 16

// Selectors reads the selectors of a list or a batch: k=v, k!=v, k in (a,b) or k for any value, up to 16, where k is a label or .data. and a member of the data by which the machine selects.
// A problem is about the field.
func Selectors(m *machines.Machine, field string, texts ...string) ([]index.Selector, *problem.Problem) {
	var all []index.Selector
	for _, text := range texts {
		selectors, err := index.ParseSelectors(text)
		if err != nil {
			return nil, problem.Invalid(field, "must be k=v, k!=v, k in (a,b) or k")
		}
		for i, s := range selectors {
			if !strings.HasPrefix(s.Label, index.DataLabel) {
				continue
			}
			by := slices.IndexFunc(m.Columns, func(c machines.Column) bool { return c.Selects && "."+c.Path == s.Label })
			if by < 0 {
				return nil, problem.Invalid(field, fmt.Sprintf("has %.64q, by which a %s is not selected", s.Label, m.Name)+selectedBy(m, ", but by "))
			}
			selectors[i].Absent = m.Columns[by].Absent
		}
		all = append(all, selectors...)
	}
	if len(all) > mostSelectors {
		return nil, problem.Invalid(field, fmt.Sprint("must be up to ", mostSelectors))
	}
	return all, nil
}

// SelectedBy is what the documentation of selectors says besides of a machine.
func SelectedBy(m *machines.Machine) string {
	return selectedBy(m, ". Not only by labels, but also by ")
}

func selectedBy(m *machines.Machine, before string) string {
	members := m.Selected()
	if len(members) == 0 {
		return ""
	}
	return before + index.DataLabel + strings.Join(members, ", "+index.DataLabel)
}
