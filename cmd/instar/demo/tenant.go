package demo

// Ten tenants share a database and write to it all the time, while one of them is moved into a database of its own: tenantDemo.run goes through the acts, and
// tenantShop (tenant_shop.go) writes and counts.

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/tenants"
)

// demoTenantCommands show what the move of a tenant promises: the demo, and its server.
func demoTenantCommands() []*cobra.Command {
	cmd := &cobra.Command{
		Use: "tenant", Short: "A tenant is moved into a database of its own while it writes, and back", Args: command.Arguments(),
		Long: `Starts a private Postgres with a database that ten tenants share, and a server. All tenants write orders all the time. One of them is
moved into a database of its own: a trigger there changes rows, the comparison fails, and everything is taken back; the second time it is held until the trigger has gone, and gets there by retry. It writes on,
and goes back with what it has written. At the end every order that was acknowledged must be there, once and with its lines, and no other. It needs initdb and
postgres, and leaves nothing behind. The exit code is 1 when a row is lost or doubled.`,
		Example: "  instar demo tenant\n  instar demo tenant --fast",
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := &tenantDemo{out: cmd.OutOrStdout(), began: time.Now(), orders: 20000, pace: 20 * time.Millisecond}
			if fast, _ := cmd.Flags().GetBool("fast"); fast { // declared below
				d.orders, d.pace = 500, 50*time.Millisecond
			}
			if f, ok := d.out.(*os.File); ok {
				info, err := f.Stat()
				d.live = err == nil && info.Mode()&os.ModeCharDevice != 0
			}
			return d.run(cmd.Context())
		},
	}
	cmd.Flags().Bool("fast", false, "fewer rows")
	server := &cobra.Command{Use: "tenants-server DIR LISTEN NATS", Short: "The server of a demo", Hidden: true, Args: command.Arguments("DIR", "LISTEN", "NATS"), RunE: demoTenantsServer}
	return []*cobra.Command{cmd, server}
}

// The addresses of the two databases come in the environment, because they have passwords.
const sharedEnv, ownEnv = "INSTAR_DEMO_SHARED_DSN", "INSTAR_DEMO_OWN_DSN"

// demoTenantsServer moves tenants until it is killed.
func demoTenantsServer(cmd *cobra.Command, args []string) error {
	cfg := config.Defaults(config.Dev)
	cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Log.Level = filepath.Join(args[0], "data"), args[1], args[2], "error"
	cfg.Outbox.Postgres = config.PostgresOff
	cfg.Tenants = config.Tenants{
		Source: config.TenantSource{DSN: os.Getenv(sharedEnv)}, Servers: []config.TenantServer{{Name: "own", DSN: os.Getenv(ownEnv)}},
		Keys: filepath.Join(args[0], "keys.json"), Migrations: filepath.Join(args[0], "migrations"), RangeRows: 2000,
	}
	return server.Run(cmd.Context(), cfg, server.Options{
		Machines: []*machines.Machine{database.Machine}, Out: cmd.OutOrStdout(), Providers: map[string]server.Provider{database.Machine.Name: tenants.Provider()},
	})
}

// TenantSchema is that of the shared database, and of each tenant's own.
//
//go:embed migrations/00001_tables.sql
var TenantSchema string

// tenantMigrations are that, and a trigger that changes what comes into the tenant's own database: the reason why the first moves fail.
//
//go:embed migrations
var tenantMigrations embed.FS

// tenantDemo is one run.
type tenantDemo struct {
	out    io.Writer
	live   bool // out is a terminal: the bar is drawn in place
	began  time.Time
	orders int           // of each tenant, before anything begins
	pace   time.Duration // between two orders of a tenant

	dir, url string
	cluster  *postgres.Cluster
	shared   string
	server   *demoProcess
	nc       *nats.Conn
	shop     *tenantShop
	names    []string
	acts     int // that have begun
}

const movedTenant = "tenant-3"

func (d *tenantDemo) tell(format string, args ...any) {
	fmt.Fprintf(d.out, "%6.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *tenantDemo) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.setup(ctx); err != nil {
		return err
	}
	selling, closeShop := context.WithCancel(ctx)
	defer closeShop()
	var tills sync.WaitGroup
	for _, name := range d.names {
		tills.Go(func() { d.shop.sell(selling, name, d.pace) })
	}
	d.tell("%d tenants write orders of three rows, each every %s", len(d.names), d.pace)
	for _, act := range []func(context.Context) error{d.plan, d.fail, d.move, d.back} {
		if err = act(ctx); err != nil {
			break
		}
	}
	closeShop()
	tills.Wait()
	if err = errors.Join(err, d.shop.errs); err != nil {
		return err
	}
	return d.judge(ctx)
}

func (d *tenantDemo) close() error {
	var err error
	if d.shop != nil {
		err = d.shop.db.Close()
	}
	if d.nc != nil {
		d.nc.Close()
	}
	if d.server != nil && d.server.PID() != 0 {
		err = errors.Join(err, d.server.Kill())
	}
	if d.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err = errors.Join(err, d.cluster.Stop(ctx))
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}

// tenantSession is what the demo reads of one.
type tenantSession struct {
	State     string            `json:"state"`
	Version   uint64            `json:"version"`
	Data      database.Data     `json:"data"`
	LastError *machines.Failure `json:"lastError"`
}

func (d *tenantDemo) path() string {
	return d.url + "/v1/tenants/" + movedTenant + "/database_provisionings/move"
}

func (d *tenantDemo) send(ctx context.Context, name string, body any) error {
	return Ask(ctx, http.MethodPost, d.path()+"/"+name, body, nil)
}

// until follows the session, with a bar, until something holds.
func (d *tenantDemo) until(ctx context.Context, holds func(*tenantSession) bool) (*tenantSession, error) {
	told := ""
	for {
		s := &tenantSession{}
		if err := Ask(ctx, http.MethodGet, d.path(), nil, s); err != nil {
			return nil, err
		}
		if line := tenantLine(s); line != told {
			told = line
			if d.live {
				fmt.Fprintf(d.out, "\r\x1b[K          %s", line)
			} else {
				d.tell("%s", line)
			}
		}
		if holds(s) || s.State == database.Failed && s.Data.Phase == database.Held {
			if d.live {
				fmt.Fprintln(d.out)
			}
			return s, nil
		}
		if err := wait.Pause(ctx, 100*time.Millisecond); err != nil {
			return nil, fmt.Errorf("the session is %s (%s): %w", s.State, s.Data.Phase, err)
		}
	}
}

// tenantLine is where a session is, with a bar.
func tenantLine(s *tenantSession) string {
	steps := []string{database.Requested, database.Allocating, database.Migrating, database.Copying, database.Verifying, database.Switching, database.Ready}
	at := slices.Index(steps, s.State) + 1
	line := fmt.Sprintf("[%s%s] %s", strings.Repeat("#", 3*at), strings.Repeat(".", 3*(len(steps)-at)), s.State)
	if s.Data.Phase != "" {
		line += ", " + string(s.Data.Phase)
	}
	if s.Data.Attempt > 1 {
		line += fmt.Sprintf(", attempt %d", s.Data.Attempt)
	}
	if p := s.Data.Progress; p != nil && p.Total > 0 {
		line += fmt.Sprintf(", %d of %d rows", p.Rows, p.Total)
		if s.State == database.Copying && p.Rate > 0 { // else it is not known yet
			line += fmt.Sprintf(" (%.0f a second, about %.1f s left)", p.Rate, p.ETA)
		}
		if s.State == database.Copying && p.Lag > 0 {
			line += fmt.Sprintf(", %d bytes behind", p.Lag)
		}
	}
	return line
}

// plan shows what would be done, and does nothing.
func (d *tenantDemo) plan(ctx context.Context) error {
	d.begin("a dry run of a move of %s, which makes nothing, in mode online: rows are copied and compared while the tenant writes, and its writes are refused only at the end, for the switch", movedTenant)
	if err := d.send(ctx, "request", map[string]any{"enterpriseId": movedTenant, "mode": database.ModeOnline, "dryRun": true}); err != nil {
		return err
	}
	s, err := d.until(ctx, func(s *tenantSession) bool { return s.State == database.Cancelled })
	if err != nil {
		return err
	}
	if s.Data.Plan == nil {
		return fmt.Errorf("there is no plan: the session is %s: %v", s.State, s.LastError)
	}
	var rows []string
	for _, table := range slices.Sorted(maps.Keys(s.Data.Plan.Rows)) {
		rows = append(rows, fmt.Sprintf("%d of %s", s.Data.Plan.Rows[table], table))
	}
	d.tell("the dry run has ended (cancelled); its plan: %s; %d rows (%s), about %.1f s", strings.Join(s.Data.Plan.Steps, ", "), s.Data.Plan.Total, strings.Join(rows, ", "), s.Data.Plan.Seconds)
	fmt.Fprintln(d.out, "          what a move makes, or changes:")
	for _, r := range s.Data.Plan.Resources {
		fmt.Fprintf(d.out, "            %-12s %s (%s)\n", r.Kind, r.Name, r.On)
	}
	return nil
}

// begin tells of the next act.
func (d *tenantDemo) begin(format string, args ...any) {
	d.acts++
	d.shop.begin(d.acts)
	d.tell("%d. %s", d.acts, fmt.Sprintf(format, args...))
}

// fail moves the tenant to where a trigger changes its rows.
func (d *tenantDemo) fail(ctx context.Context) error {
	d.begin("the move, with onFailure rollback. A migration of this demo has a trigger made in the tenant's own database, which changes each order that comes in: so the comparison has to fail")
	if err := d.send(ctx, "request", map[string]any{"enterpriseId": movedTenant, "mode": database.ModeOnline, "onFailure": "rollback"}); err != nil {
		return err
	}
	s, err := d.until(ctx, func(s *tenantSession) bool { return s.State == database.RolledBack || s.State == database.Ready })
	if err != nil {
		return err
	}
	if s.State != database.RolledBack || s.Data.FailedFrom != database.Verifying {
		return fmt.Errorf("a trigger changes rows, and the session is %s", s.State)
	}
	d.tell("it was taken back, as it was requested so: %s: %s", s.LastError.Code, s.LastError.Message)
	return nil
}

// move moves it for good: where it fails, it is held, and goes on when the reason has gone.
func (d *tenantDemo) move(ctx context.Context) error {
	d.begin("the same without onFailure: where it fails it is held, until somebody has mended it")
	before := d.shop.sold()
	if err := d.send(ctx, "request", map[string]any{"enterpriseId": movedTenant, "mode": database.ModeOnline}); err != nil {
		return err
	}
	ready := func(s *tenantSession) bool { return s.State == database.Ready }
	s, err := d.until(ctx, ready)
	if err != nil {
		return err
	}
	if s.State != database.Failed || s.Data.FailedFrom != database.Verifying {
		return fmt.Errorf("a trigger changes rows, and the session is %s: %v", s.State, s.LastError)
	}
	d.tell("it is held: %v", s.LastError)
	if err := d.straighten(ctx, s.Data.Database.Name); err != nil {
		return err
	}
	d.tell("the trigger is dropped, by hand: retry compares again, and copies again what differs")
	if err := d.send(ctx, "retry", nil); err != nil {
		return err
	}
	if s, err = d.until(ctx, ready); err != nil {
		return err
	}
	if s.State != database.Ready {
		return fmt.Errorf("the session is %s: %v", s.State, s.LastError)
	}
	d.tell("%s is in the database %s at epoch %d; %d orders were written meanwhile", movedTenant, s.Data.Database.DatabaseID, s.Data.Epoch, d.shop.sold()-before)
	return d.timeline(ctx)
}

// timeline shows the events of the last move.
func (d *tenantDemo) timeline(ctx context.Context) error {
	var page struct {
		Items []struct {
			Type string    `json:"type"`
			Time time.Time `json:"time"`
		} `json:"items"`
	}
	if err := Ask(ctx, http.MethodGet, d.path()+"/events?limit=500", nil, &page); err != nil {
		return err
	}
	d.tell("what has happened in this move, as its timeline has it (seconds since its request):")
	from := 0
	for i, e := range page.Items {
		if e.Type == database.EventRequested {
			from = i
		}
	}
	for _, e := range page.Items[from:] {
		if e.Type != database.EventTransitioned && e.Type != database.EventDataProgress {
			fmt.Fprintf(d.out, "          %6.2f s  %s\n", e.Time.Sub(page.Items[from].Time).Seconds(), e.Type)
		}
	}
	return nil
}

// back lets it write where it is, and sends it back with that.
func (d *tenantDemo) back(ctx context.Context) error {
	moved := d.shop.soldBy(movedTenant)
	if err := wait.Pause(ctx, 2*time.Second); err != nil {
		return err
	}
	d.begin("revert with keepWrites: what it has written in its own database is found by a comparison of all rows, for which it is kept out, and is copied back")
	if err := d.send(ctx, "revert", map[string]any{"keepWrites": true}); err != nil {
		return err
	}
	s, err := d.until(ctx, func(s *tenantSession) bool { return s.State == database.RolledBack || s.State == database.Ready })
	if err != nil {
		return err
	}
	if s.State != database.RolledBack {
		return fmt.Errorf("the session is %s: %v", s.State, s.LastError)
	}
	d.tell("it is back in the shared database, with the %d orders or so that it has written in its own", d.shop.soldBy(movedTenant)-moved)
	return wait.Pause(ctx, time.Second)
}

// judge accounts for every row.
func (d *tenantDemo) judge(ctx context.Context) error {
	rows := 0
	for _, name := range d.names {
		n, err := d.shop.account(ctx, name, d.orders)
		if err != nil {
			return &command.Error{Code: command.ExitGeneric, Err: err}
		}
		rows += n
	}
	d.tell("%d orders were acknowledged, and every one is there, once and with its lines: %d rows of %d tenants · the fence refused %d writes, which were repeated · the longest wait of %s was %s, in act %d",
		d.shop.sold(), rows, len(d.names), d.shop.refused, movedTenant, d.shop.longest[movedTenant].Round(time.Millisecond), d.shop.worst[movedTenant])
	return nil
}
