package knative_test

import (
	"testing"

	"github.com/bcc94042/instar/providers/knative/knativetest"
)

func TestTheSituationsOfARealController(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	knativetest.Replay(t, b.Gateway, func(status object) { b.cluster.SetStatus("default", "web", status) }, b.cluster.Step)
}
