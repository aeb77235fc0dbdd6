package clone

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
)

// What forbids is for good; a number in a URL says nothing.
func TestWhatIsForGood(t *testing.T) {
	t.Parallel()
	for text, code := range map[string]providers.Code{
		"fatal: unable to access 'https://git.example.org/rfc403/': The requested URL returned error: 502": providers.Unavailable,
		"fatal: unable to access 'https://git.example.org/a/': The requested URL returned error: 403":      providers.Invalid,
		"authorization failed":    providers.Invalid,
		"authentication required": providers.Invalid,
		"connection reset":        providers.Unavailable,
	} {
		require.Equal(t, code, providers.CodeOf(refused(text)), text)
	}
}
