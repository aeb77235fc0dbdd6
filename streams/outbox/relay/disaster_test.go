package relay

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
)

// lab is a cluster that comes back at an older state.
type lab struct {
	t       *testing.T
	dir     string // of all
	primary *postgres.Cluster
	config  map[string]string
}

func openLab(t *testing.T) *lab {
	t.Helper()
	pg.Cluster(t) // skips where there is none
	dir, err := os.MkdirTemp("", "instar-lab-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755)) // the server's user looks into it
	archive := filepath.Join(dir, "archive")
	require.NoError(t, os.Mkdir(archive, 0o777))
	require.NoError(t, os.Chmod(archive, 0o777)) // likewise
	l := &lab{t: t, dir: dir, config: map[string]string{
		"fsync": "off", "archive_mode": "on", "archive_command": "cp %p " + archive + "/%f", "restore_command": "cp " + archive + "/%f %p",
		"shared_buffers": "32MB", "autovacuum": "off",
	}}
	l.primary = l.start("primary", nil)
	return l
}

// start starts the cluster in a directory, which has it or gets it.
func (l *lab) start(name string, settings map[string]string) *postgres.Cluster {
	l.t.Helper()
	config := maps.Clone(l.config)
	maps.Copy(config, settings)
	c, err := postgres.Start(context.WithoutCancel(l.t.Context()), postgres.Options{Dir: filepath.Join(l.dir, name), Config: config})
	require.NoError(l.t, err)
	l.t.Cleanup(func() { require.NoError(l.t, c.Stop(context.Background())) })
	return c
}

func (l *lab) run(name string, args ...string) {
	l.t.Helper()
	out, err := exec.CommandContext(l.t.Context(), name, args...).CombinedOutput()
	require.NoError(l.t, err, string(out))
}

// base takes a base backup of the primary into the directory of another cluster.
func (l *lab) base(name string, args ...string) {
	l.t.Helper()
	primary, dir := filepath.Join(l.dir, "primary"), filepath.Join(l.dir, name)
	require.NoError(l.t, os.Mkdir(dir, 0o700))
	l.run("cp", "-a", filepath.Join(primary, "password"), dir)
	l.run(filepath.Join(l.primary.Bin(), "pg_basebackup"), append([]string{"--dbname", l.primary.DSN("postgres"), "--pgdata", filepath.Join(dir, "data"), "--checkpoint=fast", "--no-sync"}, args...)...)
	l.run("chown", "-R", "--reference", filepath.Join(primary, "data"), dir)
}

func (l *lab) sql(c *postgres.Cluster, query string) (text string) {
	l.t.Helper()
	conn, err := pgx.Connect(l.t.Context(), c.DSN("postgres"))
	require.NoError(l.t, err)
	defer conn.Close(context.Background())
	require.NoError(l.t, conn.QueryRow(l.t.Context(), query).Scan(&text), query)
	return text
}

// writable waits for the end of a recovery.
func (l *lab) writable(c *postgres.Cluster) {
	l.t.Helper()
	require.Eventually(l.t, func() bool { return l.sql(c, `select pg_is_in_recovery()::text`) == "false" }, waitFor, 10*tick)
}

// disasters keep a state, and bring it back.
var disasters = map[string]func(l *lab) (back func() *postgres.Cluster){
	"failover": func(l *lab) func() *postgres.Cluster {
		l.base("standby", "--write-recovery-conf", "--wal-method=stream")
		standby := l.start("standby", nil)
		at := l.sql(l.primary, `select pg_current_wal_flush_lsn()::text`)
		require.Eventually(l.t, func() bool { return l.sql(standby, `select (pg_last_wal_replay_lsn() >= '`+at+`')::text`) == "true" }, waitFor, 10*tick)
		require.NoError(l.t, standby.Kill()) // it receives nothing any more
		return func() *postgres.Cluster {
			require.NoError(l.t, l.primary.Kill())
			require.NoError(l.t, os.RemoveAll(filepath.Join(l.dir, "archive"))) // is lost as well
			require.NoError(l.t, standby.Restart(l.t.Context()))
			require.Equal(l.t, "true", l.sql(standby, `select pg_promote()::text`))
			return standby
		}
	},
	"recovery": func(l *lab) func() *postgres.Cluster {
		l.base("restored", "--wal-method=none")
		l.sql(l.primary, `select pg_create_restore_point('here')::text`)
		return func() *postgres.Cluster {
			file := l.sql(l.primary, `select pg_walfile_name(pg_switch_wal())`)
			require.Eventually(l.t, func() bool { _, err := os.Stat(filepath.Join(l.dir, "archive", file)); return err == nil }, waitFor, 10*tick)
			require.NoError(l.t, l.primary.Kill())
			data := filepath.Join(l.dir, "restored", "data")
			require.NoError(l.t, os.WriteFile(filepath.Join(data, "recovery.signal"), nil, 0o600))
			l.run("chown", "-R", "--reference", data, filepath.Join(data, "recovery.signal"))
			restored := l.start("restored", map[string]string{"recovery_target_name": "here", "recovery_target_action": "promote"})
			l.writable(restored)
			return restored
		}
	},
	"snapshot": func(l *lab) func() *postgres.Cluster {
		require.NoError(l.t, l.primary.Kill())
		l.run("cp", "-a", filepath.Join(l.dir, "primary"), filepath.Join(l.dir, "copy"))
		require.NoError(l.t, l.primary.Restart(l.t.Context()))
		return func() *postgres.Cluster {
			require.NoError(l.t, l.primary.Kill())
			return l.start("copy", nil)
		}
	},
}

// A database that comes back at an older state, and is written to before the relay opens it, so that it gives numbers out
// again: every row that it has is in the stream, once.
func TestADatabaseThatWasSetBack(t *testing.T) {
	t.Parallel()
	for name, keep := range disasters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := openLab(t)
			var all []*struck
			for _, mode := range []outbox.Mode{outbox.Log, outbox.Claim} {
				dsn, err := l.primary.Database(t.Context())
				require.NoError(t, err)
				d := &struck{shop: shopAt(t, setup(t, embedded.OS), dsn, mode), mode: mode}
				require.NoError(t, d.pool.QueryRow(t.Context(), `select current_database()`).Scan(&d.name))
				d.forgotten = d.forgetful()
				d.relays(0, 20)
				d.fill(20, 30) // the backup has them as not sent
				d.pool.Reset()
				all = append(all, d)
			}
			back := keep(l)
			for _, d := range all {
				d.relays(30, 50) // the backup does not have them
				d.pool.Reset()
			}
			cluster := back()
			for _, d := range all {
				t.Log(d.mode)
				d.forgotten()
				var err error
				d.dsn = cluster.DSN(d.name)
				d.pool, err = pgxpool.New(t.Context(), d.dsn)
				require.NoError(t, err)
				t.Cleanup(d.pool.Close)
				d.goesOn()
			}
		})
	}
}

// struck is a shop whose database comes back at an older state.
type struck struct {
	*shop
	mode      outbox.Mode
	name      string // of the database
	forgotten func()
}

// relays fills the database while a relay runs, which then ends.
func (d *struck) relays(from, to int) {
	d.t.Helper()
	_, stop := d.begin(d.mode)
	d.fill(from, to)
	d.eventually(to)
	if d.mode == outbox.Claim {
		d.allSent()
	}
	require.NoError(d.t, stop())
}

// goesOn publishes what is there and the stream has not got, once.
func (d *struck) goesOn() {
	d.t.Helper()
	d.fill(100, 160)
	stop := d.run(d.relay(d.mode))
	d.eventually(110)
	d.add("o-9", 1)
	require.Eventually(d.t, func() bool { return d.numbered("o-9") == "1" }, waitFor, tick)
	require.Equal(d.t, 111, d.stored())
	require.NoError(d.t, stop())
	d.forgotten()
	d.run(d.relay(d.mode)) // and again
	d.add("o-9", 2)
	require.Eventually(d.t, func() bool { return d.numbered("o-9") == "1 2" }, waitFor, tick)
	d.settled()
	require.Equal(d.t, 112, d.stored())
	require.Zero(d.t, d.count(`select count(*) from outbox_event_status where status <> 'SENT'`))
}

// fill appends events of three aggregates.
func (s *shop) fill(from, to int) {
	s.t.Helper()
	for n := from; n < to; n++ {
		s.add(fmt.Sprint("o-", n%3), n)
	}
}

// settled waits until the database shows all as sent.
func (s *shop) settled() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.count(`select count(*) from outbox_event_status where status <> 'SENT'`) == 0
	}, waitFor, 10*tick)
}
