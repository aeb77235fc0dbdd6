package embedded

// The embedded server as a member of a cluster. apply, called by options (server.go), turns ClusterOptions into options of nats-server: routes, certificates, timeouts. modeOf
// and wrongMode keep a directory from being started in another mode than the one that wrote it. Leads and Held ask the running server what it leads and what it has stored, for
// the status of the node.

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/renew"

	"github.com/bcc94042/instar/streams"
)

// ClusterOptions make the embedded server a member of a JetStream cluster.
type ClusterOptions struct {
	Name     string   // of the cluster; the same at all members
	Listen   string   // host:port for the routes of other members
	Routes   []string // nats://host:port of members; this one may be among them
	User     string   // by which members authenticate to each other; both or none
	Password string
	TLSCert  string // files; with them, members authenticate by a certificate of TLSCA
	TLSKey   string
	TLSCA    string
}

// modeOf is the mark that a data directory bears: the streams of a standalone directory are deleted as orphans by a
// server that joins a cluster, half a minute after its start.
func (o *Options) modeOf() string {
	if o.Cluster == nil {
		return modeStandalone
	}
	return "cluster " + o.Cluster.Name + "\n"
}

func (o *Options) name() string {
	if o.Cluster == nil || o.Name == "" {
		return streams.EmbeddedName
	}
	return o.Name
}

// wrongMode says why a server must not start on a directory that bears another mark.
func wrongMode(dir, have, want string) error {
	have, want = strings.TrimSpace(have), strings.TrimSpace(want)
	name := func(mode string) string {
		if mode == strings.TrimSpace(modeStandalone) {
			return "a single server"
		}
		return strings.Replace(mode, "cluster ", "a member of the cluster ", 1)
	}
	why := "a server in another mode would delete its streams within half a minute"
	return fmt.Errorf("streams: data directory %s was written by %s, and this is the start of %s: %s. Start it as it was, or use an empty directory and bring the data over with nats stream backup and restore", dir, name(have), name(want), why)
}

// apply adds what makes the server a member.
func (o *ClusterOptions) apply(opts *server.Options, log *slog.Logger) error {
	host, port, err := hostPort("the cluster listener", o.Listen)
	if err != nil {
		return err
	}
	opts.Cluster = server.ClusterOpts{
		Name: o.Name, Host: host, Port: port, Username: o.User, Password: o.Password, AuthTimeout: 5,
		// This detects a member that is suspended, whose connections stay open.
		PingInterval: 2 * time.Second, MaxPingsOut: 2, WriteDeadline: 5 * time.Second,
		NoAdvertise: isLoopback(opts.Host) || isLoopback(host),
	}
	if o.TLSCert != "" {
		own, err := renew.Load(o.TLSCert, o.TLSKey, log)
		if err != nil {
			return fmt.Errorf("streams: cannot load the certificate of the cluster: %w", err)
		}
		tc, err := server.GenTLSConfig(&server.TLSConfigOpts{CaFile: o.TLSCA, Verify: o.TLSCA != ""})
		if err != nil {
			return fmt.Errorf("streams: cannot load the authority of the cluster: %w", err)
		}
		own.Serve(tc)
		own.Show(tc)
		tc.RootCAs = tc.ClientCAs // this member also checks those that it connects to by it
		opts.Cluster.TLSConfig, opts.Cluster.TLSTimeout = tc, 5
	}
	for _, r := range o.Routes {
		u, err := url.Parse(r)
		if err != nil || u.Host == "" || u.Port() == "" {
			return errors.New("streams: a route is not nats://host:port") // it may have a password
		}
		if u.User == nil && o.User != "" {
			u.User = url.UserPassword(o.User, o.Password)
		}
		opts.Routes = append(opts.Routes, u)
	}
	// Leaders move away before the server stops, and its clients are asked to connect elsewhere.
	opts.LameDuckDuration, opts.LameDuckGracePeriod = 500*time.Millisecond, 50*time.Millisecond
	return nil
}

func hostPort(what, addr string) (string, int, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("streams: %s %q is not host:port: %w", what, addr, err)
	}
	port, err := strconv.Atoi(text)
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("streams: %s %q has no port between 1 and 65535", what, addr)
	}
	return host, port, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// jsz asks the running server about its own part of JetStream. It fails when the server has switched JetStream off, as a member does whose disk is full.
func (s *Server) jsz(o server.JSzOptions) (*server.Server, *server.JSInfo, error) {
	srv := s.running()
	if srv == nil {
		return nil, nil, errors.New("streams: the embedded NATS server is restarting")
	}
	info, err := srv.Jsz(&o)
	if err != nil {
		return nil, nil, fmt.Errorf("streams: cannot ask the embedded NATS server: %w", err)
	}
	if info.Disabled {
		return nil, nil, errors.New("streams: the embedded NATS server has switched off JetStream")
	}
	return srv, info, nil
}

// Leads is how many streams and consumers the server leads, and whether it leads the cluster itself.
func (s *Server) Leads() (streams, consumers int, meta bool, err error) {
	srv, info, err := s.jsz(server.JSzOptions{Accounts: true, Streams: true, Consumer: true, Limit: 1024})
	if err != nil {
		return 0, 0, false, err
	}
	for _, account := range info.AccountDetails {
		for _, st := range account.Streams {
			if st.Cluster == nil || st.Cluster.Leader == srv.Name() {
				streams++
			}
			for _, c := range st.Consumer {
				if c.Cluster == nil || c.Cluster.Leader == srv.Name() {
					consumers++
				}
			}
		}
	}
	return streams, consumers, info.Meta != nil && info.Meta.Leader == srv.Name(), nil
}

// Held are the last sequences that the server itself has, by stream of the control plane: copies for readers have the same names.
func (s *Server) Held() (map[string]uint64, error) {
	_, info, err := s.jsz(server.JSzOptions{Account: server.DEFAULT_GLOBAL_ACCOUNT, Accounts: true, Streams: true, Limit: 1024})
	if err != nil {
		return nil, err
	}
	held := map[string]uint64{}
	for _, account := range info.AccountDetails {
		for _, st := range account.Streams {
			held[st.Name] = st.State.LastSeq
		}
	}
	return held, nil
}
