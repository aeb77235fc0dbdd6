package knative

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/service"
)

// Of what a program wrote, its last line is told: the first one may begin within a secret.
func TestWhatAProgramWroteIsItsLastLine(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		"":                       "RevisionFailed",
		"the image is not there": "RevisionFailed: the image is not there",
		`Revision "a" failed with message: Container failed with: no table.`:                                   `RevisionFailed: Revision "a" failed with message: Container failed with: no table.`,
		"Revision \"a\" failed with message: Container failed with: ret@db/acme\nit failed with 2\nno table\n": `RevisionFailed: Revision "a" failed with: no table`,
		`Revision "a" failed with message: Container failed with: ret@db/acme` + strings.Repeat(" x", 1020):    `RevisionFailed: Revision "a" failed with a line of more than 2048 bytes, which is in its log`,
	} {
		o := service.Observation{}
		o.Reason, o.Message = "RevisionFailed", message
		require.Equal(t, want, said(&o))
	}
}
