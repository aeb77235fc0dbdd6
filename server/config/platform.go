package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/bcc94042/instar/machines"
)

// Platform are instances of the tenants' own: what runs, and below which domain each is reached. Without a domain there is no such machine.
type Platform struct {
	Domain    string                    `koanf:"domain"`    // below which the slugs of tenants are names; a wildcard record leads there to the proxy
	Instances PlatformInstances         `koanf:"instances"` // what runs releases
	Storage   PlatformStorage           `koanf:"storage"`   // where the buckets of tenants are
	Versions  map[string]Release        `koanf:"versions"`  // of the application, that can be had
	Channels  map[string]string         `koanf:"channels"`  // version by release channel
	Sizes     map[string]string         `koanf:"sizes"`     // quota of a tenant's bucket by size of instance; small is 256MiB when there are none
	Limits    map[string]PlatformLimits `koanf:"limits"`    // of a release, by size of instance
	Users     string                    `koanf:"users"`     // that tenants get, of the kind process of a server that is root; this server's when empty
	Env       map[string]string         `koanf:"env"`       // of every release
	Dir       string                    `koanf:"dir"`       // of releases and tenants; platform in the data directory when empty
	Host      string                    `koanf:"host"`      // IP address that releases listen on
	Ports     string                    `koanf:"ports"`     // of releases; nothing else is to listen there
	Health    string                    `koanf:"health"`    // path that a live release answers below 400
	Readiness string                    `koanf:"readiness"` // path that a tenant who is ready answers below 400, through the proxy
	Startup   time.Duration             `koanf:"startup"`   // until a release has to answer
	Drain     time.Duration             `koanf:"drain"`     // for what a release still answers until it ends nevertheless
	Logs      bool                      `koanf:"logs"`      // what releases of the kind process write can be read by the role read
	Quota     PlatformQuota             `koanf:"quota"`
	Approval  bool                      `koanf:"approval"` // each request waits for approve when it is planned
	Export    string                    `koanf:"export"`   // directory that deprovision exports to; there is no export when empty
}

// PlatformInstances is what runs releases.
type PlatformInstances struct {
	Kind   string `koanf:"kind"`   // one of [Kinds]
	Socket string `koanf:"socket"` // of the engine of the kind docker
}

// The kinds of what runs releases: processes of this server, containers of an engine of this machine, services of its systemd, Knative Services of the cluster of gateways.knative, and a program elsewhere that answers over NATS.
const (
	KindProcess  = "process"
	KindDocker   = "docker"
	KindSystemd  = "systemd"
	KindKnative  = "knative"
	KindExternal = "external"
)

// Kinds are all of them.
var Kinds = []string{KindProcess, KindDocker, KindSystemd, KindKnative, KindExternal}

// PlatformStorage is where the buckets of tenants are: in JetStream, or in a store that speaks S3.
type PlatformStorage struct {
	Kind        string `koanf:"kind"`        // jetstream or s3
	Listen      string `koanf:"listen"`      // of the kind jetstream, for clients of S3; empty does not listen
	Endpoint    string `koanf:"endpoint"`    // URL of the store, or of the kind jetstream that under which releases reach Listen
	Region      string `koanf:"region"`      // of buckets that are made
	Bucket      string `koanf:"bucket"`      // in which each tenant has a prefix; empty is a bucket for each
	Credentials string `koanf:"credentials"` // file of this server's, as ~/.aws/credentials; empty looks where the tools of S3 do
	Tenants     string `koanf:"tenants"`     // directory with a file of the same form for each tenant, which its releases get; empty gives them none
}

// The kinds of stores.
const (
	StorageJetStream = "jetstream"
	StorageS3        = "s3"
	DefaultStore     = "https://s3.amazonaws.com" // where no endpoint is set
)

func (s PlatformStorage) validate(check func(ok bool, format string, args ...any)) {
	check(s.Kind == StorageJetStream || s.Kind == StorageS3, "storage.kind: %q is neither jetstream nor s3", s.Kind)
	u, err := url.Parse(s.Endpoint)
	check(err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil && strings.Trim(u.Path, "/") == "" && u.RawQuery == "", "storage.endpoint: %q is not scheme, host and port of a store, as https://s3.amazonaws.com", s.Endpoint)
	check(s.Listen == "" || listener("", s.Listen) == nil, "storage.listen: %q is not host:port, as 127.0.0.1:8333", s.Listen)
	for name, path := range map[string]string{"credentials": s.Credentials, "tenants": s.Tenants} {
		check(path == "" || filepath.IsAbs(path), "storage.%s: %q is not an absolute path", name, path)
	}
	check(s.Kind == StorageS3 || s.Bucket == "" && s.Tenants == "", "storage: a shared bucket and credentials of tenants are of the kind s3")
}

// PlatformLimits bound a release; a zero is no limit.
type PlatformLimits struct {
	Memory    string  `koanf:"memory"` // as 512MiB
	Files     int     `koanf:"files"`
	Processes int     `koanf:"processes"`
	CPU       float64 `koanf:"cpu"` // processors
}

// Millis are thousandths of a processor.
func (l PlatformLimits) Millis() int { return int(math.Round(l.CPU * 1000)) }

// Bytes are those of its memory.
func (l PlatformLimits) Bytes() int64 {
	if l.Memory == "" {
		return 0
	}
	return size(l.Memory)
}

// UserRange are the first and the last user of tenants; zero where they get none.
func (p Platform) UserRange() (first, last int) { return ends(p.Users) }

func (p Platform) validateLimits(check func(ok bool, format string, args ...any)) {
	for _, name := range slices.Sorted(maps.Keys(p.Limits)) {
		l := p.Limits[name]
		_, known := p.Quotas()[name]
		check(known, "limits.%s: platform.sizes has no such size", name)
		n, err := humanize.ParseBytes(l.Memory)
		check(l.Memory == "" || err == nil && n >= 16<<20, "limits.%s.memory: %q is not a size such as 512MiB, of 16MiB at least", name, l.Memory)
		check(l.Files == 0 || l.Files >= 16, "limits.%s.files: %d is less than 16", name, l.Files)
		check(l.CPU == 0 || l.CPU >= 0.01 && l.CPU <= 1000, "limits.%s.cpu: %g is not between 0.01 and 1000 processors", name, l.CPU)
		check(p.Instances.Kind != KindKnative || l.Files == 0 && l.Processes == 0, "limits.%s: the kind knative limits memory and cpu, and neither files nor processes: leave them out", name)
		check(l.Processes >= 0, "limits.%s.processes: %d is negative", name, l.Processes)
		check(l.Processes <= 0 || p.Instances.Kind != KindProcess || p.Users != "", "limits.%s.processes: without platform.users it would count what this server's user runs: set users, or leave it out", name)
	}
	if p.Users == "" {
		return
	}
	first, last := p.UserRange()
	check(usersForm.MatchString(p.Users) && first >= 1000 && first < last && last < 1<<31, "users: %q is no range such as 200000-265535, of two users and 1000 at least", p.Users)
	check(p.Instances.Kind == KindProcess, "users: only the kind process gives tenants users")
}

// PlatformQuota is how many tenants may have instances, with those that are on their way to one; 0 is no limit.
type PlatformQuota struct {
	Instances  int            `koanf:"instances"`
	Namespaces map[string]int `koanf:"namespaces"` // of each of these
}

// Release is a version of the application: a program that serves the socket that it is handed, or listens on the port in PORT, or an image with one.
type Release struct {
	Command []string          `koanf:"command"`
	Image   string            `koanf:"image"`
	Env     map[string]string `koanf:"env"`
	Socket  string            `koanf:"socket"` // of the kind process: fd, as when empty, or port
}

func defaultPlatform() Platform {
	return Platform{Instances: PlatformInstances{Kind: KindProcess, Socket: "/var/run/docker.sock"}, Storage: PlatformStorage{Kind: StorageJetStream, Listen: "127.0.0.1:8333", Endpoint: DefaultStore, Region: "us-east-1"}, Host: "127.0.0.1", Ports: "20000-29999", Health: "/", Readiness: "/", Startup: time.Minute, Drain: 30 * time.Second}
}

var (
	versionForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)
	usersForm   = regexp.MustCompile(`^[0-9]{4,10}-[0-9]{4,10}$`)
	portsForm   = regexp.MustCompile(`^[0-9]{1,5}-[0-9]{1,5}$`)
)

// smallBucket is the quota where no sizes are configured.
const smallBucket = 256 << 20

// On reports whether tenants can have instances.
func (p Platform) On() bool { return p.Domain != "" }

// Range are the first and the last port of releases.
func (p Platform) Range() (first, last int) { return ends(p.Ports) }

// ends are the first and the last number of a range.
func ends(text string) (first, last int) {
	from, to, _ := strings.Cut(text, "-")
	first, _ = strconv.Atoi(from) // was checked
	last, _ = strconv.Atoi(to)
	return first, last
}

// Refuses is why a name cannot be bound, or empty: slugs are below the domain of the platform.
func (p Platform) Refuses(host string) string {
	if p.On() && (host == p.Domain || strings.HasSuffix(host, "."+p.Domain)) {
		return fmt.Sprintf("%s is the platform's: names below it are those of instances", p.Domain)
	}
	return ""
}

// Quotas are the bytes of a tenant's bucket by size of instance.
func (p Platform) Quotas() map[string]int64 {
	if len(p.Sizes) == 0 {
		return map[string]int64{DefaultSize: smallBucket}
	}
	all := map[string]int64{}
	for name, text := range p.Sizes {
		all[name] = size(text)
	}
	return all
}

func (p Platform) validate(c *Config) error {
	if !p.On() {
		if len(p.Versions) > 0 || len(p.Channels) > 0 {
			return errors.New("platform: needs a domain below which the slugs of tenants are names")
		}
		return nil
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("platform."+format, args...))
		}
	}
	check(pointForm.MatchString(p.Domain), "domain: %q is not a domain name in lower case", p.Domain)
	check(c.Tenants.On(), "domain: an instance has a database of its own, which needs the section tenants")
	check(c.Domains.On(), "domain: an instance is reached through the proxy, which needs domains.https")
	check(!c.Cluster.On(), "domain: instances are processes of one machine, so a member of a cluster cannot have them; run one server, which may be attached (nats.url)")
	check(slices.Contains(Kinds, p.Instances.Kind), "instances.kind: %q is none of %s", p.Instances.Kind, strings.Join(Kinds, ", "))
	check(p.Instances.Kind != KindDocker || filepath.IsAbs(p.Instances.Socket), "instances.socket: %q is not the absolute path of a socket", p.Instances.Socket)
	check(p.Instances.Kind != KindKnative || c.Gateways.Knative.Namespace != "", "instances.kind: the kind knative needs gateways.knative.namespace: without it releases are in the namespaces of their tenants, and the server would need a role for the Secrets of all")
	p.Storage.validate(check)
	p.validateLimits(check)
	check(len(p.Versions) > 0, "versions: needs at least one version of the application")
	for _, name := range slices.Sorted(maps.Keys(p.Versions)) {
		check(versionForm.MatchString(name), "versions: %q is no name of a version: lower-case letters, digits, and ._- within", name)
		p.runs(name, check)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Channels)) {
		_, known := p.Versions[p.Channels[name]]
		check(known, "channels.%s: %q is none of platform.versions", name, p.Channels[name])
	}
	for _, name := range slices.Sorted(maps.Keys(p.Sizes)) {
		n, err := humanize.ParseBytes(p.Sizes[name])
		check(machines.IsLabel(name) && err == nil && n > 0, "sizes.%s: %q is not a size such as 1GiB", name, p.Sizes[name])
	}
	check(p.Quota.Instances >= 0, "quota.instances: %d is negative", p.Quota.Instances)
	for _, name := range slices.Sorted(maps.Keys(p.Quota.Namespaces)) {
		check(machines.IsLabel(name) && p.Quota.Namespaces[name] >= 0, "quota.namespaces.%s: needs the name of a namespace, and a number that is not negative", name)
	}
	check(p.Export == "" || filepath.IsAbs(p.Export), "export: %q is not the absolute path of a directory", p.Export)
	_, err := netip.ParseAddr(p.Host)
	check(err == nil, "host: %q is not an IP address", p.Host)
	first, last := p.Range()
	check(portsForm.MatchString(p.Ports) && first >= 1 && first <= last && last <= 65535, "ports: %q is no range such as 20000-29999", p.Ports)
	check(strings.HasPrefix(p.Health, "/"), "health: %q is no path", p.Health)
	check(strings.HasPrefix(p.Readiness, "/"), "readiness: %q is no path", p.Readiness)
	check(p.Startup >= time.Second && p.Startup <= time.Hour, "startup: %s is not between 1s and 1h", p.Startup)
	check(p.Drain >= time.Second && p.Drain <= 5*time.Minute, "drain: %s is not between 1s and 5m", p.Drain)
	return errors.Join(errs...)
}

// runs checks that a version has what its kind runs.
func (p Platform) runs(version string, check func(ok bool, format string, args ...any)) {
	r := p.Versions[version]
	switch p.Instances.Kind {
	case KindDocker, KindKnative:
		check(r.Image != "", "versions.%s.image: needs an image, which the kind %s runs", version, p.Instances.Kind)
	case KindExternal:
		check(len(r.Command) > 0 || r.Image != "", "versions.%s: needs a command or an image, for the provider to run", version)
	default:
		check(len(r.Command) > 0, "versions.%s.command: needs a program", version)
		check(r.Image == "", "versions.%s.image: the kind %s runs no images", version, p.Instances.Kind)
	}
	check(r.Socket == "" || p.Instances.Kind == KindProcess && (r.Socket == "fd" || r.Socket == "port"), "versions.%s.socket: %q is none of fd and port, which the kind process has", version, r.Socket)
}

// redacted has *** in place of what variables have.
func (p Platform) redacted() Platform {
	hide := func(env map[string]string) map[string]string {
		all := maps.Clone(env)
		for k := range all {
			all[k] = hidden
		}
		return all
	}
	p.Env = hide(p.Env)
	p.Versions = maps.Clone(p.Versions)
	for name, r := range p.Versions {
		r.Env = hide(r.Env)
		p.Versions[name] = r
	}
	return p
}
