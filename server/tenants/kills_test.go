package tenants_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/client/tenantdb"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/server/servertest"
)

// dying has the server killed at statements that change something for good, later in each of its lives: so each step is interrupted in many places, and ends at last. By turns the statement is not performed, and
// it is performed when the server has gone: that of a commit is then after it, and before its report.
type dying struct {
	t    *testing.T
	hit  chan chan struct{} // the server is to be killed; what it gets is closed when it was
	over chan struct{}      // closed when it is killed no more

	mu      sync.Mutex
	on      bool
	n, at   int
	left    int           // kills; less than 0 is any number
	lost    bool          // the statement at which the server was killed last was performed
	held    string        // a statement that has this is not performed, and waits for release
	reached chan struct{} // gets one when a statement waits
	release chan struct{} // closed
	refused string        // there is no room on the disk for a statement that has this
}

func (d *dying) fault(sql string) databasetest.Fault {
	d.mu.Lock()
	held, refused := d.held != "" && strings.Contains(sql, d.held), d.refused != "" && strings.Contains(sql, d.refused)
	dies := !held && !refused && d.dies(sql)
	lost := d.lost
	d.mu.Unlock()
	killed := make(chan struct{})
	switch {
	case refused:
		return databasetest.Full
	case held:
		select {
		case d.reached <- struct{}{}:
		default:
		}
		select {
		case <-d.release:
		case <-d.t.Context().Done():
		}
	case dies:
		select {
		case d.hit <- killed:
			<-killed
			if lost {
				return databasetest.Lost
			}
		case <-d.over:
			return databasetest.None
		case <-d.t.Context().Done():
		}
	default:
		return databasetest.None
	}
	return databasetest.Cut
}

var lasting = []string{"commit", "create ", "alter ", "drop ", "insert ", "update ", "delete ", "comment ", "revoke ", "grant ", "select pg_create_logical", "select pg_replication_slot_advance"}

// dies reports whether it is the statement at which the server is killed in this life. The lock is held.
func (d *dying) dies(sql string) bool {
	sql = strings.ToLower(strings.TrimSpace(sql))
	if !d.on || d.left == 0 || !slices.ContainsFunc(lasting, func(s string) bool { return strings.HasPrefix(sql, s) }) && !strings.Contains(sql, "pg_drop_replication_slot") {
		return false
	}
	if d.n++; d.n <= d.at {
		return false
	}
	d.n, d.at, d.on = 0, d.at+3, false
	d.lost = !d.lost
	d.left--
	return true
}

func (d *dying) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// mortal is a world with wires on both sides, whose server dies.
type mortal struct {
	*world
	*dying
	*servertest.Story
	tenant, database string
	before           map[string][]string
	others           []string // what another tenant has written
}

// setupMortal starts the server, which has a tenant that can be moved in any mode.
func setupMortal(t *testing.T, tenant string, kills int) *mortal {
	t.Helper()
	w := setup(t, 30, tenant)
	databasetest.Exec(t, w.source, `drop table public.events; alter table public.orders replica identity using index orders_tenant;
		create unique index names_tenant on public.names (enterprise_id, name); alter table public.names replica identity using index names_tenant`)
	dir := t.TempDir()
	databasetest.WriteMigrations(t, dir, "00098_without_events.sql", "-- +goose Up\ndrop table public.events;\n")
	d := &dying{t: t, hit: make(chan chan struct{}), over: make(chan struct{}), reached: make(chan struct{}, 1), release: make(chan struct{}), left: kills}
	w.Config.Tenants.Migrations, w.Config.Tenants.RangeRows, w.Config.Tenants.Parallel, w.Config.Tenants.Source.From = dir, 20, 1, w.source.DSN
	w.Config.Tenants.Source.DSN = databasetest.Through(t, w.source, d.fault).DSN
	w.Config.Tenants.Servers[0].DSN = databasetest.Through(t, pg.Address{DSN: w.Config.Tenants.Servers[0].DSN}, d.fault).DSN
	m := &mortal{world: w, dying: d, tenant: tenant, database: w.target(tenant).Database, before: databasetest.Everything(t, w.source)}
	w.Start()
	m.Story = w.Follow("instar.evt." + machine.Machine.Name + ".default." + tenant + ".move.")
	return m
}

// send sends a command. The server is killed in survives only, so it answers.
func (m *mortal) send(command, body string) {
	m.T.Helper()
	m.OK("POST", path(m.tenant, "move")+"/"+command, body)
}

// open lets go what is held, which is not performed.
func (d *dying) open() {
	d.set(func() { d.held = "" })
	close(d.release)
}

// survives sends a command, and has the server killed again and again until an event has come.
func (m *mortal) survives(command, body, last string) {
	m.T.Helper()
	m.set(func() { m.on = true })
	m.send(command, body)
	m.open()
	var seen []string
	sinceEvent := 0 // a task that has ended 13 processes goes to the dead letters
	for timeout := time.After(8 * time.Minute); ; {
		select {
		case <-timeout:
			_, v := m.Do("GET", path(m.tenant, "move"), "")
			require.FailNow(m.T, "it did not get there", "%s after %d kills; these came: %v; it is %v", last, m.Kills, seen, v)
		case killed := <-m.hit:
			m.Kill()
			close(killed)
			m.Again()
			sinceEvent++
			m.set(func() { m.on = sinceEvent < 11 })
		case event := <-m.Events:
			sinceEvent = 0
			m.set(func() { m.on = true })
			if seen = append(seen, event); event == last {
				close(m.over)
				require.Positive(m.T, m.Kills)
				m.T.Logf("%d kills", m.Kills)
				return
			}
		}
	}
}

// A server that is killed at each step of a move, of each mode, with writers: no row is lost or foreign, and there is what the ledger says.
func TestKillsOfAMove(t *testing.T) {
	for _, mode := range []string{"offline", "online"} {
		t.Run(mode, func(t *testing.T) {
			kills := needed(t, mode == "online")
			m := setupMortal(t, "moved-"+mode, kills)
			written := m.writing()
			m.survives("request", fmt.Sprintf(`{"mode":%q}`, mode), machine.EventReady)
			m.agrees("ready")
			m.unharmed(written()...)
			databasetest.Same(t, m.source, m.target(m.tenant), m.tenant)
		})
	}
}

// needed is how often a row of the table is killed: the whole table is for `make test-kills`, some of it for every day.
func needed(t *testing.T, always bool) int {
	t.Helper()
	if os.Getenv("INSTAR_KILLS") != "" {
		return -1 // as many as it takes
	}
	if !always {
		t.Skip("it takes minutes: make test-kills")
	}
	return 4
}

// The undo of each state, in the middle of which the session is cancelled.
func TestKillsOfAnUndo(t *testing.T) {
	for state, at := range map[string]map[string]string{ // the statement at which it is, by mode
		machine.Requested:  {"offline": "select count(*) from", "online": "select count(*) from"},
		machine.Allocating: {"offline": "create database \"tenant_", "online": "grant connect"},
		machine.Migrating:  {"offline": "grant usage on schema", "online": "alter default privileges"},
		machine.Copying:    {"offline": `copy "public"."orders" (`, "online": `copy "public"."lines" (`},
		machine.Verifying:  {"offline": "hash_record_extended", "online": "create or replace trigger"},
	} {
		for mode, at := range at {
			t.Run(state+" "+mode, func(t *testing.T) {
				m := setupMortal(t, "undone", needed(t, state == machine.Verifying && mode == "online"))
				written := m.writing()
				m.set(func() { m.held = at })
				m.send("request", fmt.Sprintf(`{"mode":%q}`, mode))
				select {
				case <-m.reached:
				case <-time.After(waitFor):
					require.FailNow(t, "no such statement", at)
				}
				if state == machine.Requested { // there is nothing to take back
					m.send("cancel", "")
					m.open()
					m.Killed(session.EventUndoCompleted, session.EventUndoStarted)
				} else {
					m.survives("cancel", "", session.EventUndoCompleted)
				}
				require.Equal(t, state, m.agrees("cancelled").FailedFrom)
				m.unharmed(written()...)
			})
		}
	}
}

// What leads out of ready, and a rollback after a switch that was told and has failed.
func TestKillsOfWhatComesAfterwards(t *testing.T) {
	for name, c := range map[string]struct{ mode, command, body, state, last string }{
		"revert":         {"online", "revert", `{}`, "rolled_back", session.EventUndoCompleted},
		"keep writes":    {"offline", "revert", `{"keepWrites":true}`, "rolled_back", session.EventUndoCompleted},
		"discard writes": {"offline", "revert", `{"discardWrites":true}`, "rolled_back", session.EventUndoCompleted},
		"deprovision":    {"online", "deprovision", `{"tenant":"after"}`, "deprovisioned", machine.EventRetired},
		"rotate":         {"offline", "rotate", ``, "ready", machine.EventRotated},
	} {
		t.Run(name, func(t *testing.T) {
			m := setupMortal(t, "after", needed(t, name == "keep writes"))
			m.send("request", fmt.Sprintf(`{"mode":%q}`, c.mode))
			m.Until(machine.EventReady)
			settings := m.before["settings"]
			if strings.Contains(name, "writes") {
				databasetest.Exec(t, m.target("after"), `insert into public.settings values ('after', 'wsince', 'x'); delete from public.settings where key = 'Key 1'`)
			}
			m.survives(c.command, c.body, c.last)
			m.agrees(c.state)
			var written []string
			if name == "keep writes" {
				written = []string{"wsince"}
				m.before["settings"] = slices.DeleteFunc(settings, func(row string) bool {
					return strings.Contains(row, `"enterprise_id":"after","key":"Key 1"`)
				})
				require.Less(t, len(m.before["settings"]), len(settings))
			}
			m.unharmed(written...)
			if c.state == "ready" {
				databasetest.Same(t, m.source, m.target("after"), "after")
			}
		})
	}
}

// A switch that was told, and whose last statement has failed, is taken back.
func TestKillsOfTheUndoOfASwitch(t *testing.T) {
	for _, mode := range []string{"offline", "online"} {
		t.Run(mode, func(t *testing.T) {
			m := setupMortal(t, "switched", needed(t, false))
			js, err := jetstream.New(m.connect())
			require.NoError(t, err)
			kv, err := js.KeyValue(t.Context(), tenantdb.RoutesBucket)
			require.NoError(t, err)
			_, err = kv.Put(t.Context(), "switched", []byte(`{"isolationMode":"shared","status":"active","epoch":41}`))
			require.NoError(t, err)
			m.set(func() { m.refused = "update public.tenant_runtime set epoch" })
			m.send("request", fmt.Sprintf(`{"mode":%q}`, mode))
			m.ends("switched", "move", "failed")
			require.Equal(t, m.database, databasetest.Ask(t, m.source, `select database_name from public.tenant_runtime`))
			require.ErrorContains(t, m.write(), "read-only")
			m.set(func() { m.refused = "" })
			m.survives("rollback", `{}`, session.EventUndoCompleted)
			m.agrees("rolled_back")
			m.unharmed()
			require.NoError(t, m.write())
		})
	}
}
