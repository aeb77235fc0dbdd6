package entities

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
	"github.com/bcc94042/instar/server"
)

// An entity with a parent is named as the command line shows it, and as servers name jobs.
func TestEntitiesBelowAParentHaveOneNameInTwoForms(t *testing.T) {
	t.Parallel()
	s := &command.Session{Program: &command.Program{Options: server.Options{Machines: []*machines.Machine{repository.Machine, task.Machine}}}}
	for _, name := range []string{"shop/lint", "shop.lint"} {
		at, err := pathOf(s, task.Machine, name)
		require.NoError(t, err)
		require.Equal(t, "/v1/repositories/shop/tasks/lint", at)
	}
	for _, name := range []string{"lint", "shop.", ".lint", "a.b.c", "a/b.c"} {
		_, err := pathOf(s, task.Machine, name)
		require.Error(t, err, name)
	}
}
