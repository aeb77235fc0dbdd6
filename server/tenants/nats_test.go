package tenants_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/server/servertest"
	"github.com/bcc94042/instar/streams/embedded"
)

// natsEnv has this program be a NATS server: its directory and address.
const natsEnv = "INSTAR_TEST_NATS"

// natsAlone is a NATS server in a process of its own, until its input ends.
func natsAlone(at string) error {
	dir, listen, _ := strings.Cut(at, " ")
	if _, err := embedded.Start(embedded.Options{Dir: dir, Listen: listen, Open: true, Profile: embedded.OS}); err != nil {
		return err
	}
	fmt.Println("listens")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// startNATS starts one, and returns how it is killed.
func startNATS(t *testing.T, dir, listen string) (kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), natsEnv+"="+dir+" "+listen), os.Stderr
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	kill = func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "listens\n", line)
	return kill
}

// The NATS server dies alone, in each state of a move, and its clients live: what they do meanwhile for databases goes on, or is done again, and nothing is lost or done twice.
func TestNATSDiesWhileATenantIsMoved(t *testing.T) {
	t.Parallel()
	for tenant, mode := range map[string]string{"natsless": "offline", "natsless-online": "online"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			m := setup(t, 100, tenant)
			databasetest.Exec(t, m.source, `drop table public.events; alter table public.orders replica identity using index orders_tenant;
				create unique index names_tenant on public.names (enterprise_id, name); alter table public.names replica identity using index names_tenant`)
			migrations := t.TempDir()
			databasetest.WriteMigrations(t, migrations, "00098_without_events.sql", "-- +goose Up\ndrop table public.events;\n")
			before := databasetest.Everything(t, m.source)
			dir, listen := t.TempDir(), fmt.Sprint("127.0.0.1:", servertest.Port(t))
			kill := startNATS(t, dir, listen)
			m.Config.NATS.URL, m.Config.NATS.Listen, m.Config.Tenants.Migrations = "nats://"+listen, "", migrations
			m.Start()
			m.OK("POST", path(tenant, "move")+"/request", fmt.Sprintf(`{"mode":%q}`, mode))
			var died []string
			for state, began := "", time.Now(); state != "ready"; time.Sleep(5 * time.Millisecond) {
				require.Less(t, time.Since(began), 5*time.Minute, "it is %s, and was killed in %v", state, died)
				state, _ = m.seen(tenant, "move")
				if state == "failed" {
					_, v := m.Do("GET", path(tenant, "move"), "")
					require.FailNow(t, "it has failed", "%v, and was killed in %v", v["lastError"], died)
				}
				if state != "" && state != "ready" && !slices.Contains(died, state) {
					died = append(died, state)
					kill()
					kill = startNATS(t, dir, listen)
				}
			}
			require.Greater(t, len(died), 2, "%v", died)
			databasetest.Same(t, m.source, m.target(tenant), tenant)
			require.Equal(t, before, databasetest.Everything(t, m.source))
			require.Equal(t, "1 1", databasetest.Ask(t, m.source, `select count(*) || ' ' || max(epoch) from public.tenant_runtime`), "it was switched once")
			m.agrees(tenant, "ready")
			m.audited(tenant, map[string]string{"offline": "created database, created fence, created runtime", "online": "created database, created fence, created replication, created runtime"}[mode])
		})
	}
}
