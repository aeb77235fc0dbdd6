package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// What a machine would have under a name of the server's own operations is told before anything is served.
func TestAMachineWithTheNameOfAnOperationIsRefused(t *testing.T) {
	b := setup(t)
	for _, x := range []struct{ name, plural, conflict string }{
		{"operation", "surgeries", "the machine operation, which may need another name or plural: its operation get-operation is there twice: GET /v1/surgeries/{id} and GET /v1/operations/{operation}"},
		{"room", "machines", "the machine room, which may need another name or plural: its operation GET /v1/machines is there twice: GET /v1/machines and GET /v1/machines"},
	} {
		m := named(x.name, x.plural)
		_, err := streams.Ensure(t.Context(), b.js, streams.Plan{States: []string{m.Plural}})
		require.NoError(t, err)
		b.indexes.Set(m.Name, index.New(b.js, m.Plural, func(_ string, value []byte) (index.Meta, error) { return index.DescribeJSON(value) }, index.Options{}))
		_, err = b.server.Prepare(t.Context(), m)
		require.ErrorContains(t, err, x.conflict)
	}
}

func named(name, plural string) *machines.Machine {
	return machines.Define(machines.Definition[struct{}]{
		Name: name, Plural: plural, Doc: "A thing for tests.",
		States: []machines.State[struct{}]{{Name: "here"}, {Name: "gone", Terminal: true}},
		Inputs: []machines.Command{{Name: "come", Birth: true}, {Name: "leave"}},
		Edges:  []machines.Edge[struct{}]{{From: []string{machines.None}, On: "come", To: "here"}, {From: []string{"here"}, On: "leave", To: "gone"}},
	})
}
