package docs_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/all"
)

// settings lists the fields of a body of a command, or of a struct in it: <machine>/<command> or
// <machine>/<command>/<field>. What the tags of the code say is what the API documents, defaults included.
func settings(t *testing.T, of string) string {
	t.Helper()
	path := strings.Split(of, "/")
	i := slices.IndexFunc(all.Machines(), func(m *machines.Machine) bool { return m.Name == path[0] })
	require.GreaterOrEqual(t, i, 0, "there is no machine %s", path[0])
	in, ok := all.Machines()[i].Input(path[1])
	require.True(t, ok, "there is no command %s", path[1])
	body := reflect.TypeOf(in.Body)
	for _, name := range path[2:] {
		j := slices.IndexFunc(reflect.VisibleFields(body), func(f reflect.StructField) bool { return jsonName(f) == name })
		require.GreaterOrEqual(t, j, 0, "%s has no field %s", body, name)
		body = reflect.VisibleFields(body)[j].Type
	}
	return table([]string{"field", "meaning"}, reflect.VisibleFields(body), func(f reflect.StructField) []string {
		return []string{code(jsonName(f)), strings.ReplaceAll(f.Tag.Get("doc"), "<", "&lt;")}
	})
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
