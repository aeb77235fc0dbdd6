package cli

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"time"

	"github.com/bcc94042/instar/server/config"
)

// certificateWarns is how long before its end a certificate is worth a warning: what renews them does so earlier, as a rule.
const certificateWarns = 21 * 24 * time.Hour

// checkCertificates looks when the certificates of the configuration end. The file of an authority may hold several.
func checkCertificates(cfg config.Config, now time.Time) []finding {
	var found []finding
	for _, c := range []struct{ key, file string }{
		{"http.tls.cert", cfg.HTTP.TLS.Cert},
		{"nats.tls.cert", cfg.NATS.TLS.Cert},
		{"nats.tls.ca", cfg.NATS.TLS.CA},
		{"cluster.tls.cert", cfg.Cluster.TLS.Cert},
		{"cluster.tls.ca", cfg.Cluster.TLS.CA},
		{"discovery.xdsTLS.cert", cfg.Discovery.XDSTLS.Cert},
		{"discovery.xdsTLS.ca", cfg.Discovery.XDSTLS.CA},
	} {
		if c.file != "" {
			verdict, detail := checkCertificate(c.file, now)
			found = append(found, finding{"certificate " + c.key, verdict, c.file + ": " + detail})
		}
	}
	return found
}

func checkCertificate(file string, now time.Time) (verdict, detail string) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fail, err.Error()
	}
	var first *x509.Certificate // to end
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return fail, err.Error()
		}
		if first == nil || c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	switch {
	case first == nil:
		return fail, "there is no certificate in it"
	case now.Before(first.NotBefore):
		return fail, fmt.Sprintf("%s is not valid before %s", first.Subject, first.NotBefore.Format(time.DateTime))
	case !now.Before(first.NotAfter):
		return fail, fmt.Sprintf("%s has ended on %s", first.Subject, first.NotAfter.Format(time.DateTime))
	case first.NotAfter.Sub(now) < certificateWarns:
		return warn, fmt.Sprintf("%s ends on %s", first.Subject, first.NotAfter.Format(time.DateTime))
	}
	return fine, "valid until " + first.NotAfter.Format(time.DateOnly)
}
