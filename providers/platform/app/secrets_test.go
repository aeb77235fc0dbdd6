package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
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

// The variables of the configuration may have passwords, as those for NATS. What is left of one without control characters may be nothing, or a letter, which is in every message.
func TestValuesOfTheConfigurationAreHidden(t *testing.T) {
	t.Parallel()
	words := app.Configured(
		map[string]string{"NATS_URL": "nats://app:pw@nats:4222", "MODE": "fast", "BELLS": "\a\a\a\a\a\a\a\a", "LETTER": "e\a\a\a\a\a\a\a", "BYTES": "\xff\xff\xff\xff\xff\xff\xff\xff"},
		map[string]app.Program{"1.0": {Env: map[string]string{"KEY": "top\asecret"}}, "1.1": {Env: map[string]string{"KEY": "topsecret"}}},
	)
	require.Equal(t, []string{"\a\a\a\a\a\a\a\a", "e\a\a\a\a\a\a\a", "nats://app:pw@nats:4222", "top\asecret", "topsecret", "\xff\xff\xff\xff\xff\xff\xff\xff"}, words)
	require.Equal(t, "fast? *** and ***, *** as app with pw", app.Hide(t.TempDir(), "fast? topsecret and top\asecret, nats://app:pw@nats:4222 as app with pw", words))
}

// A release can put anything where its secrets are; its messages are not told then, and nobody waits.
func TestWhatAReleasePutsAmongItsSecretsStopsNobody(t *testing.T) {
	t.Parallel()
	other := filepath.Join(t.TempDir(), "of-another")
	require.NoError(t, os.WriteFile(other, []byte("x"), 0o600))
	for what, puts := range map[string]func(dir string) error{
		"a pipe": func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "a"), 0o600) },
		"a link": func(dir string) error { return os.Symlink(other, filepath.Join(dir, "a")) },
		"a large file": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<20), 0o600)
		},
		"many files": func(dir string) (err error) {
			for i := 0; i < 100 && err == nil; i++ {
				err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), []byte("x"), 0o600)
			}
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			require.NoError(t, app.KeepSecrets(&app.Release{Secrets: map[string]string{"DATABASE_URL": "postgres://a:secret@b/c"}}, home, 0))
			require.Equal(t, "wrong: ***", app.Hide(home, "wrong: secret", nil))
			dir := filepath.Join(home, ".secrets")
			require.NoError(t, puts(dir))
			require.Contains(t, app.Hide(home, "wrong: secret", nil), "its message is in its log, and not told")
		})
	}
}
