// Package renew serves a certificate from its files, and the one that replaces it there without a restart.
package renew

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// Certificate is a certificate with its key. Its files are looked at with each handshake, and read again when one of them has changed. While they cannot be
// read, or do not belong together because only one has been replaced, they are tried with each handshake, the certificate before goes on, and the log says why, once.
type Certificate struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	files   [2]os.FileInfo // as they were when the current one was read
	current *tls.Certificate
	told    string // why they cannot be used
}

// Load reads a certificate and its key. log may be nil.
func Load(cert, key string, log *slog.Logger) (*Certificate, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Certificate{cert: cert, key: key, log: log}
	files, err := c.look()
	if err != nil {
		return nil, err
	}
	return c, c.read(files)
}

// Serve has a listener show the certificate. Existing connections keep the one that they have.
func (c *Certificate) Serve(config *tls.Config) {
	config.Certificates = nil // they would win where a client names no host
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil }
}

// Show has a client show the certificate to servers that ask for one.
func (c *Certificate) Show(config *tls.Config) {
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return c.get(), nil }
}

func (c *Certificate) get() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	files, err := c.look()
	if err == nil && c.told == "" && same(files[0], c.files[0]) && same(files[1], c.files[1]) {
		return c.current
	}
	if err == nil { // also what looks as it did: who may read a file is not a part of it
		err = c.read(files)
	}
	switch {
	case err == nil:
		c.told = ""
		c.log.Info("a certificate was renewed", "file", c.cert, "until", c.current.Leaf.NotAfter)
	case err.Error() != c.told:
		c.told = err.Error()
		c.log.Warn("a changed certificate cannot be loaded; keeping the previous one", "error", err)
	}
	return c.current
}

func (c *Certificate) look() (files [2]os.FileInfo, err error) {
	for i, name := range []string{c.cert, c.key} {
		if files[i], err = os.Stat(name); err != nil {
			return files, fmt.Errorf("cannot read a certificate: %w", err)
		}
	}
	return files, nil
}

func (c *Certificate) read(files [2]os.FileInfo) error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("cannot use the certificate %s with the key %s: %w", c.cert, c.key, err)
	}
	c.files, c.current = files, &pair
	return nil
}

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
