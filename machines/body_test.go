package machines_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

func TestCommandsTakeNoNameInAnotherCase(t *testing.T) {
	t.Parallel()
	b := kettleBench(t)
	_, _, err := b.m.Step(b.e, machines.Input{Command: "boil", Body: []byte(`{"N":3}`)})
	var r *machines.Refusal
	require.ErrorAs(t, err, &r)
	require.Equal(t, []machines.FieldError{{Field: "N", Message: "unknown field"}}, r.Fields)
	_, _, err = b.m.Step(b.e, machines.Input{Command: "boil", Body: []byte(`{"n":3}`), Time: start})
	require.NoError(t, err)
}
