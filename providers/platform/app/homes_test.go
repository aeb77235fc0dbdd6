package app_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
)

// What ends the processes of a tenant may be of the user behind the range, and what is of that one ends with them. So nothing is ended while a tenant may have it, as of an earlier range.
func TestNobodyEndsWithAnotherTenant(t *testing.T) {
	t.Parallel()
	var ended []int
	h := &app.Homes{Dir: t.TempDir(), First: 1001, Last: 1004, End: func(_ context.Context, user int) error {
		ended = append(ended, user)
		return nil
	}}
	a, b := app.Tenant{Namespace: "default", Name: "tenant-a", Owner: "a"}, app.Tenant{Namespace: "default", Name: "tenant-b", Owner: "b"}
	for _, tenant := range []app.Tenant{a, b} {
		_, err := h.User(tenant)
		require.NoError(t, err)
	}
	h.Last = 1001
	for _, tenant := range []app.Tenant{a, b} {
		err := h.Forget(t.Context(), tenant)
		require.True(t, providers.IsUnavailable(err), "%v", err)
		require.ErrorContains(t, err, "users up to 1002 were given to tenants: widen the range at its end")
	}
	require.Empty(t, ended)
	h.Last = 1002
	for _, tenant := range []app.Tenant{a, b} {
		require.NoError(t, h.Forget(t.Context(), tenant))
	}
	require.Equal(t, []int{1001, 1002}, ended)
	h.Last = 1001
	_, err := h.User(a)
	require.ErrorContains(t, err, "all users from 1001 to 1001 were given to tenants")
}
