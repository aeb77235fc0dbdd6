// Package authority is a certificate authority in this process, for tests and demos: pebble, the ACME server that Let's Encrypt has for tests of clients.
package authority

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

// Options are how it validates.
type Options struct {
	Names    string                          // name server that it asks; empty is one of its own, which leads every name to 127.0.0.1
	HTTPPort int                             // on which it asks for challenges over HTTP
	TLSPort  int                             // and over TLS
	Good     time.Duration                   // how long its certificates are
	Front    func(http.Handler) http.Handler // what stands before it; nil is nothing
}

// Authority issues certificates until it is closed.
type Authority struct {
	URL   string         // of its ACME directory
	Roots *x509.CertPool // which its certificates lead to

	srv   *httptest.Server
	names *dns.Server
}

// Start starts one, and writes the certificate that it is itself reached with to a file.
func Start(o Options, file string) (*Authority, error) {
	for name, value := range map[string]string{"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0"} { // else it waits before it validates, and rejects some requests, to be like the real one
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	a := &Authority{Roots: x509.NewCertPool()}
	if o.Names == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		a.names = &dns.Server{Listener: l, Handler: dns.HandlerFunc(here)}
		go func() { _ = a.names.ActivateAndServe() }()
		o.Names = l.Addr().String()
	}
	quiet, store := log.New(io.Discard, "", 0), db.NewMemoryStore()
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {ValidityPeriod: uint64(o.Good / time.Second)}})
	front := wfe.New(quiet, store, va.New(quiet, o.HTTPPort, o.TLSPort, false, o.Names, store), issuer, []string{"ca.test"}, false, false, 0, 0)
	handler := front.Handler()
	if o.Front != nil {
		handler = o.Front(handler)
	}
	a.srv = httptest.NewTLSServer(handler)
	a.URL = a.srv.URL + wfe.DirectoryPath
	a.Roots.AddCert(issuer.GetRootCert(0).Cert)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.srv.Certificate().Raw}), 0o600); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// Close ends it.
func (a *Authority) Close() {
	a.srv.Close()
	if a.names != nil {
		_ = a.names.Shutdown()
	}
}

// here answers that every name is at 127.0.0.1.
func here(w dns.ResponseWriter, r *dns.Msg) {
	m := new(dns.Msg).SetReply(r)
	for _, q := range r.Question {
		if q.Qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)})
		}
	}
	_ = w.WriteMsg(m) // who asks asks again
}
