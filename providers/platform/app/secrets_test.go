package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/platform/app"
)

func TestKeysOfAFileAreHidden(t *testing.T) {
	t.Parallel()
	words := app.Words("[default]\naws_access_key_id = AKIAEXAMPLE\naws_secret_access_key='wJalr/UtnFEMI='\nregion = eu\n")
	require.Equal(t, "*** and ***, signed by *** in eu", app.Redact("AKIAEXAMPLE and wJalr/UtnFEMI=, signed by aws_access_key_id = AKIAEXAMPLE in eu", words))
	require.Equal(t, "the password is ***", app.Redact("the password is secret", app.Words("postgres://a:secret@b/c?sslmode=require")))
}
