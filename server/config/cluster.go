package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams/embedded"
)

// Cluster makes the embedded NATS server a member of a cluster, in which every stream has replicas. Without a name it is a
// single server.
type Cluster struct {
	Name     string `koanf:"name"`
	Listen   string `koanf:"listen"`
	Routes   string `koanf:"routes"` // nats://host:port of the members, with commas between them
	Replicas int    `koanf:"replicas"`
	User     string `koanf:"user"` // what members ask of each other
	Password string `koanf:"password"`
	TLS      TLS    `koanf:"tls"` // with the three of them, members prove who they are
}

// On reports whether the embedded server is a member of a cluster.
func (c Cluster) On() bool { return c.Name != "" }

func (c Cluster) routes() []string {
	var list []string
	for r := range strings.SplitSeq(c.Routes, ",") {
		if r = strings.TrimSpace(r); r != "" {
			list = append(list, r)
		}
	}
	return list
}

// Server is what the embedded NATS server is told; nil for a single server.
func (c Cluster) Server() *embedded.ClusterOptions {
	if !c.On() {
		return nil
	}
	return &embedded.ClusterOptions{
		Name: c.Name, Listen: c.Listen, Routes: c.routes(), User: c.User, Password: c.Password, TLSCert: c.TLS.Cert, TLSKey: c.TLS.Key, TLSCA: c.TLS.CA,
	}
}

func (c Cluster) validate(n NATS) error {
	if !c.On() {
		if c.Listen != "" || c.Routes != "" {
			return errors.New("cluster.listen and cluster.routes are for members of a cluster; give it a name with --cluster")
		}
		return nil
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(machines.IsLabel(c.Name), "cluster.name: %q is not one lower-case token", c.Name)
	check(!n.Attached(), "cluster.name is for the embedded server; the servers at nats.url have a cluster of their own")
	check(n.Attached() || n.Listen != "", "nats.listen: a member of a cluster needs an address for clients, a loopback one at least")
	check(c.Replicas == 1 || c.Replicas == 3 || c.Replicas == 5, "cluster.replicas: %d is none of 1, 3, 5", c.Replicas)
	check(len(c.routes()) > 0, "cluster.routes: needs nats://host:port of the other members")
	for _, r := range c.routes() {
		u, err := url.Parse(r)
		check(err == nil && u.Scheme == "nats" && u.Port() != "", "cluster.routes: an address is not nats://host:port")
	}
	check((c.User == "") == (c.Password == ""), "cluster.user and cluster.password belong together, and one is missing")
	check((c.TLS.CA == "") == (c.TLS.Cert == ""), "cluster.tls: members that prove who they are need ca, cert and key")
	errs = append(errs, listener("cluster.listen", c.Listen), pair("cluster.tls", KeyPair{Cert: c.TLS.Cert, Key: c.TLS.Key}), readable("cluster.tls.ca", c.TLS.CA))
	return errors.Join(errs...)
}

// redacted hides what members ask of each other.
func (c Cluster) redacted() Cluster {
	if c.Password != "" {
		c.Password = hidden
	}
	routes := c.routes()
	for i, r := range routes {
		if u, err := url.Parse(r); err != nil {
			routes[i] = hidden
		} else if u.User != nil {
			u.User = url.User(hidden)
			routes[i] = u.String()
		}
	}
	c.Routes = strings.Join(routes, ",")
	return c
}
