package platform

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/streamstest"
)

func TestAnInstallationHasOneID(t *testing.T) {
	t.Parallel()
	env := streamstest.Start(t, embedded.Options{Profile: embedded.OS})
	id := func(bucket string) string {
		id, err := installation(t.Context(), env.JS, bucket, 1)
		require.NoError(t, err)
		require.Regexp(t, `^[a-z0-9]{26}$`, id)
		return id
	}
	first := id(InstallationBucket)
	require.Equal(t, first, id(InstallationBucket), "after a restart")
	require.NotEqual(t, first, id("other_"+InstallationBucket), "another installation of the same account")
}
