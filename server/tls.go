package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"

	"github.com/bcc94042/instar/internal/renew"
	"github.com/bcc94042/instar/server/config"
)

// ListenerTLS is what a listener speaks; nil without a certificate, which is renewed with its files. With an authority it takes clients of its only.
func ListenerTLS(t config.TLS, log *slog.Logger) (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil
	}
	own, err := renew.Load(t.Cert, t.Key, log)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	own.Serve(c)
	if t.CA == "" {
		return c, nil
	}
	text, err := os.ReadFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("cannot read the authority: %w", err)
	}
	if c.ClientCAs = x509.NewCertPool(); !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("there is no certificate in %s", t.CA)
	}
	c.ClientAuth = tls.RequireAndVerifyClientCert
	return c, nil
}
