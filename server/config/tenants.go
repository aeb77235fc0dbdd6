package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Tenants are the database that tenants share, and the servers that have a database of their own for each. What is not said is off: no session can be requested then.
type Tenants struct {
	Source     TenantSource           `koanf:"source"`
	Servers    []TenantServer         `koanf:"servers"`
	Keys       string                 `koanf:"keys"`       // file with the keyset that credentials are sealed with; dev makes one that is not there
	Migrations string                 `koanf:"migrations"` // directory with SQL files of goose
	Column     string                 `koanf:"column"`     // that names the tenant; enterprise_id when empty
	Schemas    []string               `koanf:"schemas"`    // public when empty
	Tables     map[string]TenantTable `koanf:"tables"`     // those that need a rule
	RangeRows  int                    `koanf:"rangeRows"`  // 0 is 10,000
	Parallel   int                    `koanf:"parallel"`   // tables at a time, of one copy; 0 is 2
	Rate       string                 `koanf:"rate"`       // bytes a second, of one copy, as 50MiB; empty does not limit it
	Grace      time.Duration          `koanf:"grace"`      // until a database that was taken back is dropped; 0 is 7 days

	Audit       map[string]time.Duration `koanf:"audit"`       // how long its records are kept, by class; else as long as events of the class
	AuditExport string                   `koanf:"auditExport"` // absolute path of a directory, or s3://bucket/prefix, that they are copied to; empty copies none
}

// TenantSource is the shared database. Its role may create triggers and publications there.
type TenantSource struct {
	DSN     string `koanf:"dsn"`
	DSNFile string `koanf:"dsnFile"` // instead of it; read at the start
	From    string `koanf:"from"`    // its DSN as the servers of tenants reach it, in mode online; that of above when empty
}

// TenantServer is a Postgres server for databases of tenants. Its role may create databases and roles.
type TenantServer struct {
	Name    string   `koanf:"name"`
	Region  string   `koanf:"region"` // default when empty
	Sizes   []string `koanf:"sizes"`  // that it takes, where the catalogue was not set otherwise; small when empty
	DSN     string   `koanf:"dsn"`
	DSNFile string   `koanf:"dsnFile"`
	Host    string   `koanf:"host"` // host:port that applications are told; that of the DSN when empty
}

// TenantTable is a rule for one table.
type TenantTable struct {
	Kind   string `koanf:"kind"` // tenant, child, reference or skip; found out when empty
	Column string `koanf:"column"`
	Via    string `koanf:"via"` // of a child: the foreign key that leads to its parent
}

// What a request gets that names no region or no size.
const (
	DefaultRegion = "default"
	DefaultSize   = "small"
)

// On reports whether anything of it is configured.
func (t Tenants) On() bool {
	return t.Source != TenantSource{} || len(t.Servers) > 0 || t.Keys != "" || t.Migrations != "" || len(t.Tables) > 0
}

// ReadDSN is a DSN, or what its file has.
func ReadDSN(dsn, file string) (string, error) {
	if file == "" {
		return dsn, nil
	}
	raw, err := os.ReadFile(file)
	return strings.TrimSpace(string(raw)), err
}

func (t Tenants) validate(mode string) error {
	if !t.On() {
		return nil
	}
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("tenants."+format, args...))
		}
	}
	check((t.Source.DSN == "") != (t.Source.DSNFile == ""), "source: needs either dsn or dsnFile, of the database that tenants share")
	errs = append(errs, readable("tenants.source.dsnFile", t.Source.DSNFile))
	check(len(t.Servers) > 0, "servers: needs at least one server for databases of tenants")
	seen := map[string]bool{}
	for i, s := range t.Servers {
		at := fmt.Sprintf("servers[%d]", i)
		check(machines.IsLabel(s.Name), "%s.name: %q is not a DNS label", at, s.Name)
		check(!seen[s.Name], "%s.name: %q is there twice", at, s.Name)
		check((s.DSN == "") != (s.DSNFile == ""), "%s: needs either dsn or dsnFile", at)
		errs = append(errs, readable("tenants."+at+".dsnFile", s.DSNFile))
		check(s.Region == "" || machines.IsLabel(s.Region), "%s.region: %q is not a DNS label", at, s.Region)
		for _, size := range s.Sizes {
			check(machines.IsLabel(size), "%s.sizes: %q is not a DNS label", at, size)
		}
		seen[s.Name] = true
	}
	check(t.Keys != "", "keys: needs the file with the keyset that credentials are sealed with; `instar tenant-keyset FILE` makes one")
	if _, err := os.Stat(t.Keys); t.Keys != "" && (mode != Dev || !errors.Is(err, os.ErrNotExist)) {
		errs = append(errs, readable("tenants.keys", t.Keys))
	}
	files, err := filepath.Glob(filepath.Join(t.Migrations, "*.sql"))
	check(t.Migrations != "" && err == nil && len(files) > 0, "migrations: %q is no directory with SQL files of goose, by which the database of a tenant is made", t.Migrations)
	for _, name := range slices.Sorted(maps.Keys(t.Tables)) {
		kind := t.Tables[name].Kind
		check(slices.Contains([]string{"", "tenant", "child", "reference", "skip"}, kind), "tables.%s.kind: %q is none of tenant, child, reference, skip", name, kind)
	}
	check(t.RangeRows >= 0 && t.RangeRows <= 10_000_000, "rangeRows: %d is not between 0 and 10000000", t.RangeRows)
	check(t.Parallel >= 0 && t.Parallel <= 64, "parallel: %d is not between 0 and 64", t.Parallel)
	_, err = humanize.ParseBytes(t.Rate)
	check(t.Rate == "" || err == nil, "rate: %q is not a size such as 50MiB", t.Rate)
	check(t.Grace >= 0, "grace: %s is negative", t.Grace)
	for _, class := range slices.Sorted(maps.Keys(t.Audit)) {
		check(slices.Contains(streams.Classes, class), "audit.%s: is none of %s", class, strings.Join(streams.Classes, ", "))
		check(t.Audit[class] >= 24*time.Hour, "audit.%s: %s is less than 24h", class, t.Audit[class])
	}
	check(t.AuditExport == "" || filepath.IsAbs(t.AuditExport) || strings.HasPrefix(t.AuditExport, "s3://"), "auditExport: %q is neither an absolute path nor s3://bucket/prefix", t.AuditExport)
	return errors.Join(errs...)
}

// BytesPerSecond is Rate; 0 does not limit it.
func (t Tenants) BytesPerSecond() int64 { return size(t.Rate) }

// redacted has *** in place of what may hold a password.
func (t Tenants) redacted() Tenants {
	t.Source.DSN, t.Source.From = RedactDSN(t.Source.DSN), RedactDSN(t.Source.From)
	t.Servers = slices.Clone(t.Servers)
	for i := range t.Servers {
		t.Servers[i].DSN = RedactDSN(t.Servers[i].DSN)
	}
	return t
}
