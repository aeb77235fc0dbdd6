package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
)

// byDefault sets what transactions of the database, or of the role of the relay, begin with.
func (s *shop) byDefault(role bool, setting, value string) (relays func(*Relay)) {
	s.t.Helper()
	config, err := pgx.ParseConfig(s.dsn)
	require.NoError(s.t, err)
	if !role {
		s.exec(fmt.Sprintf(`alter database %q set %s = '%s'`, config.Database, setting, value))
		return func(*Relay) {}
	}
	name := "relay_" + config.Database
	s.exec(fmt.Sprintf(`create role %q superuser login password 'secret'`, name))
	s.exec(fmt.Sprintf(`alter role %q set %s = '%s'`, name, setting, value))

	return func(r *Relay) {
		r.Config.DSN = fmt.Sprintf("postgres://%s:secret@%s:%d/%s?sslmode=disable", name, config.Host, config.Port, config.Database)
	}
}

// The fence needs a statement that sees what was committed before it began, whatever the isolation is that a database or a
// role has by default.
func TestTheDefaultIsolationDoesNotMatter(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		role      bool
		isolation string
	}{
		"DatabaseRepeatableRead": {false, "repeatable read"}, "RoleSerializable": {true, "serializable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, outbox.Log)
			s.run(s.relay(outbox.Log, s.byDefault(of.role, "default_transaction_isolation", of.isolation)))
			stop := make(chan struct{})
			wait := s.write(8, stop)
			<-time.After(4 * time.Second) // one row of some hundreds was lost
			close(stop)
			wait()
			s.check()
		})
	}
}

// A relay writes, also where transactions are read-only by default.
func TestReadOnlyByDefaultDoesNotMatter(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
		as := s.byDefault(true, "default_transaction_read_only", "on")
		s.begin(mode, as)
		s.add("o-1", 1)
		s.eventually(1)
	})
}

// A row is kept aside for good before a marker passes it, also where commits do not wait for the disk by default.
func TestAParkedRowSurvivesACrash(t *testing.T) {
	t.Parallel()
	cluster := anotherCluster(t, "wal_writer_delay", "10000")
	dsn, err := cluster.Database(t.Context())
	require.NoError(t, err)
	s := shopAt(t, setup(t, embedded.OS), dsn, outbox.Log)
	s.byDefault(false, "synchronous_commit", "off")
	r := s.relay(outbox.Log, func(r *Relay) {
		r.Config.Poll, r.Config.BaseBackoff, r.Config.MaxBackoff = time.Hour, time.Hour, time.Hour // no later commit takes it along
		r.Config.Types = &outbox.Types{Unknown: outbox.ParkUnknown}
	})
	s.add("o-1", 1)
	stop := s.run(r)
	s.parks(1)
	require.NoError(t, stop())
	require.NoError(t, cluster.Kill())
	require.NoError(t, cluster.Restart(t.Context()))
	s.pool.Reset()
	s.run(s.relay(outbox.Log))
	s.add("o-2", 2)
	s.eventually(1)
	require.Equal(t, 1, s.count(`select count(*) from outbox_parked`))
}

// A relay needs sessions of its own: through a pooler it ends with a sentence, not in a loop.
func TestARelayThroughAPoolerIsRefused(t *testing.T) {
	t.Parallel()
	s := openShop(t, outbox.Log)
	for _, config := range []string{"pool_mode = transaction", "pool_mode = session\nignore_startup_parameters = search_path,jit,enable_bitmapscan,enable_seqscan,default_transaction_isolation,default_transaction_read_only,default_transaction_deferrable,instar.session"} {
		through := pg.Pooler(t, s.dsn, config)
		var fatal *PermanentError
		err := s.relay(outbox.Log, func(r *Relay) { r.Config.DSN = through }).Run(t.Context())
		require.ErrorAs(t, err, &fatal)
		require.ErrorIs(t, err, outbox.ErrPooler)
	}
}
