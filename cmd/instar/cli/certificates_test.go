package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
)

func TestCertificatesThatEnd(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	written := func(lives ...time.Duration) string {
		var raw []byte
		for _, life := range lives {
			template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "host"}, NotBefore: at, NotAfter: at.Add(life)}
			der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
			require.NoError(t, err)
			raw = append(raw, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
		}
		file := filepath.Join(t.TempDir(), "cert.pem")
		require.NoError(t, os.WriteFile(file, raw, 0o600))
		return file
	}
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		file         string
		after        time.Duration
		verdict, say string
	}{
		"Long":      {written(90 * day), day, fine, "valid until 2026-04-01"},
		"Soon":      {written(90 * day), 80 * day, warn, "CN=host ends on 2026-04-01"},
		"Over":      {written(90 * day), 90 * day, fail, "CN=host has ended on 2026-04-01"},
		"Early":     {written(90 * day), -day, fail, "is not valid before 2026-01-01"},
		"OneOfTwo":  {written(90*day, 5*day), day, warn, "ends on 2026-01-06"},
		"Empty":     {written(), 0, fail, "no certificate"},
		"NotThere":  {"/nowhere/cert.pem", 0, fail, "no such file"},
		"SomeOther": {"certificates.go", 0, fail, "no certificate"},
	} {
		verdict, say := checkCertificate(c.file, at.Add(c.after))
		require.Equal(t, c.verdict, verdict, name)
		require.Contains(t, say, c.say, name)
	}
	var cfg config.Config
	require.Empty(t, checkCertificates(cfg, at))
	cfg.HTTP.TLS.Cert, cfg.Cluster.TLS.CA = written(90*day), written(day)
	found := checkCertificates(cfg, at)
	require.Len(t, found, 2)
	require.Equal(t, "certificate http.tls.cert", found[0].Check)
	require.Equal(t, warn, found[1].Verdict)
}
