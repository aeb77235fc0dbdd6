package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// Database makes an empty database and returns its DSN. It is dropped with the cluster.
func (c *Cluster) Database(ctx context.Context) (dsn string, err error) {
	name, err := c.create(ctx, "template1")
	if err != nil {
		return "", err
	}
	return c.DSN(name), nil
}

func (c *Cluster) create(ctx context.Context, template string) (name string, err error) {
	conn, err := pgx.Connect(ctx, c.DSN("postgres"))
	if err != nil {
		return "", fmt.Errorf("postgres: %w", err)
	}
	defer conn.Close(ctx)
	name = "t" + strings.ToLower(rand.Text()[:12])
	if _, err := conn.Exec(ctx, "create database "+name+" template "+template); err != nil {
		return "", fmt.Errorf("postgres: database %s: %w", name, err)
	}
	return name, nil
}

// Suite is the cluster of a package's tests: started by the first test that asks for it, without fsync, with
// prepared transactions, in a directory that goes away.
//
//	var pg postgres.Suite
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(pg.Around(m)) }
type Suite struct {
	Config map[string]string // settings beside those

	once    sync.Once
	dir     string
	cluster *Cluster
	err     error

	mu     sync.Mutex
	copied map[string]string // names of databases that are copied, by what they are of
}

// runner is a *testing.M.
type runner interface{ Run() int }

// tester is a *testing.T.
type tester interface {
	Helper()
	Context() context.Context
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

type around struct {
	suite *Suite
	m     runner
}

// Around runs the tests and then stops the cluster.
func (s *Suite) Around(m runner) interface{ Run() int } { return around{s, m} }

func (a around) Run() int {
	code := a.m.Run()
	if err := a.suite.stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func (s *Suite) stop() error {
	var err error
	if s.cluster != nil {
		err = s.cluster.Stop(context.Background())
	}
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

func (s *Suite) start() {
	if s.dir, s.err = os.MkdirTemp("", "instar-pg-"); s.err != nil {
		return
	}
	config := map[string]string{
		"fsync": "off", "full_page_writes": "off", "max_prepared_transactions": "10",
		"max_connections": "200", "shared_buffers": "64MB",
	}
	maps.Copy(config, s.Config)
	s.cluster, s.err = Start(context.Background(), Options{Dir: s.dir, Config: config})
}

// Cluster is the running cluster. Where Postgres is not installed the test is skipped, with CI=true it fails.
func (s *Suite) Cluster(t tester) *Cluster {
	t.Helper()
	s.once.Do(s.start)
	switch {
	case errors.Is(s.err, ErrNoPostgres) && os.Getenv("CI") != "true":
		t.Skipf("%v (make postgres does it on Debian)", s.err)
	case s.err != nil:
		t.Fatalf("%v (make postgres installs it on Debian)", s.err)
	}
	return s.cluster
}

// Copy is the DSN of a database for one test, which is a copy of one that fill has filled once for the suite: migrations take ten times as long as a copy. What fill has opened it closes.
func (s *Suite) Copy(t tester, of string, fill func(dsn string) error) string {
	t.Helper()
	c := s.Cluster(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.copied == nil {
		s.copied = map[string]string{}
	}
	if s.copied[of] == "" {
		name, err := c.create(t.Context(), "template1")
		if err == nil {
			err = fill(c.DSN(name))
		}
		if err != nil {
			t.Fatalf("%s: %v", of, err)
		}
		s.copied[of] = name
	}
	name, err := c.create(t.Context(), s.copied[of])
	if err != nil {
		t.Fatalf("a copy of %s: %v", of, err)
	}
	return c.DSN(name)
}

// Database is the DSN of an empty database for one test.
func (s *Suite) Database(t tester) string {
	t.Helper()
	dsn, err := s.Cluster(t).Database(t.Context())
	if err != nil {
		t.Fatalf("%v", err)
	}
	return dsn
}
