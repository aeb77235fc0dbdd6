package entities

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/service"
)

func TestStatesAreFoundInAnyCase(t *testing.T) {
	t.Parallel()
	name, err := stateCalled(service.Machine, "ready")
	require.NoError(t, err)
	require.Equal(t, service.Ready, name)
	_, err = stateCalled(service.Machine, "reedy")
	require.ErrorContains(t, err, `service has no state "reedy"; it has `)
	_, err = wish(service.Machine, "state=ready,Failed")
	require.NoError(t, err)
}

// Whoever waits for an entity to settle waits for what a command has begun, and not for a look that never ends.
func TestWhatIsRepeatedInAStateIsNotUnderWay(t *testing.T) {
	t.Parallel()
	require.Empty(t, begunIn(service.Machine, service.Failed))
	require.Contains(t, begunIn(database.Machine, database.Failed), database.EffectUndo)
}
