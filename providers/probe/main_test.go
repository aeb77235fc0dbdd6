package probe

import (
	"crypto/x509"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	_, _ = x509.SystemCertPool() // read once per process, and slowly: not within the timeout of the first probe
	goleak.VerifyTestMain(m)
}
