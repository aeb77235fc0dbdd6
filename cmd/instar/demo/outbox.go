package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/embedded"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/streams/outbox/relay"
)

// Command shows what the program promises.
func Command(p *command.Program) *cobra.Command {
	g := command.Group("demo", "Demonstrate a guarantee in a minute, in a directory of its own")
	g.GroupID = command.GroupServer
	box := &cobra.Command{
		Use: "outbox", Short: "An order application whose relay, Postgres and NATS are killed in turn", Args: command.Arguments(),
		Long: `Starts a private Postgres, a NATS server and a relay as processes of their own. An application writes orders and their
events, each order with its event in one transaction, as fast as it can, while the three are killed with kill -9 in turn.
At the end every event that was committed must be in the stream: once, and in the order of its aggregate. It needs initdb
and postgres, and leaves nothing behind. The exit code is 1 when anything is lost, doubled or out of order.`,
		Example: "  instar demo outbox\n  instar demo outbox --fast",
		RunE: func(cmd *cobra.Command, _ []string) error {
			fast, _ := cmd.Flags().GetBool("fast") // declared below
			d := &outboxDemo{out: cmd.OutOrStdout(), kills: 9, pause: 4 * time.Second, began: time.Now()}
			if fast {
				d.kills, d.pause = 3, 1500*time.Millisecond
			}
			return d.run(cmd.Context())
		},
	}
	box.Flags().Bool("fast", false, "about 15 seconds instead of a minute")
	server := &cobra.Command{Use: "nats-server DIR LISTEN", Short: "The NATS server of a demo", Hidden: true, Args: command.Arguments("DIR", "LISTEN"), RunE: demoServer}
	g.AddCommand(box, demoDiscoveryCommand(p), server)
	g.AddCommand(demoTenantCommands()...)
	return g
}

// demoServer is the NATS server of a demo: it runs until it is killed.
func demoServer(cmd *cobra.Command, args []string) error {
	s, err := embedded.Start(embedded.Options{Dir: args[0], Listen: args[1], Open: true, Profile: embedded.Interval})
	if err != nil {
		return err
	}
	<-cmd.Context().Done()
	return s.Shutdown(context.WithoutCancel(cmd.Context()))
}

// outboxDemo is one run.
type outboxDemo struct {
	out   io.Writer
	kills int
	pause time.Duration // between kills
	began time.Time

	dir     string
	cluster *postgres.Cluster
	nats    *demoProcess
	relay   *demoProcess
	nc      *nats.Conn
	js      jetstream.JetStream
	shop    *shop
}

func (d *outboxDemo) tell(format string, args ...any) {
	fmt.Fprintf(d.out, "%6.1f s  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *outboxDemo) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.setup(ctx); err != nil {
		return err
	}
	d.shop = &shop{dsn: d.cluster.DSN("postgres"), wake: d.wake}
	if err := d.shop.open(ctx); err != nil {
		return err
	}
	d.tell("a shop with 4 tills writes orders, each with its event in one transaction")
	selling, closeShop := context.WithCancel(ctx)
	defer closeShop()
	var tills sync.WaitGroup
	tills.Go(func() { d.shop.run(selling) })
	err = d.havoc(ctx)
	closeShop()
	tills.Wait()
	if err != nil {
		return err
	}
	d.tell("the shop closes: %d events of acknowledged transactions", d.shop.acknowledged())
	return d.verify(ctx)
}

// setup starts what the application needs, each in a process of its own.
func (d *outboxDemo) setup(ctx context.Context) (err error) {
	if d.dir, d.cluster, err = Postgres(ctx, map[string]string{"max_connections": "50"}); err != nil {
		return err
	}
	d.tell("Postgres runs as process %d", d.cluster.PID())
	if err := outbox.Init(ctx, d.cluster.DSN("postgres"), "", outbox.Settings{}); err != nil {
		return err
	}
	address, err := FreeAddress()
	if err != nil {
		return err
	}
	d.nats = &demoProcess{args: []string{"demo", "nats-server", filepath.Join(d.dir, "nats"), address}}
	if err := d.nats.start(); err != nil {
		return err
	}
	url := "nats://" + address
	if err := Await(ctx, "the NATS server", func() (err error) {
		d.nc, err = nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
		return err
	}); err != nil {
		return err
	}
	if d.js, err = jetstream.New(d.nc); err != nil {
		return err
	}
	d.tell("NATS runs as process %d", d.nats.PID())
	d.relay = &demoProcess{
		args: []string{"outbox", "relay", "--nats-url", url, "--source", "shop", "--node", "demo", "--log-level", "error"},
		env:  []string{"INSTAR_OUTBOX_DSN=" + d.cluster.DSN("postgres")}, log: filepath.Join(d.dir, "relay.log"),
		again: true,
	}
	if err := d.relay.start(); err != nil {
		return err
	}
	d.tell("the relay runs as process %d", d.relay.PID())
	return nil
}

// havoc kills one of the three after the other, and starts it again.
func (d *outboxDemo) havoc(ctx context.Context) error {
	victims := []struct {
		name string
		kill func() error
		back func(context.Context) error
	}{
		{"the relay", d.relay.Kill, func(context.Context) error { return d.relay.start() }},
		{"Postgres", d.cluster.Kill, d.cluster.Restart},
		{"NATS", d.nats.Kill, func(context.Context) error { return d.nats.start() }},
	}
	for i := range d.kills {
		if err := wait.Pause(ctx, d.pause); err != nil {
			return err
		}
		v := victims[i%len(victims)]
		acknowledged, stored := d.shop.acknowledged(), d.stored(ctx)
		if err := v.kill(); err != nil {
			return fmt.Errorf("cannot kill %s: %w", v.name, err)
		}
		away := time.Now()
		if err := wait.Pause(ctx, time.Duration(200+150*i)*time.Millisecond); err != nil {
			return err
		}
		if err := v.back(ctx); err != nil {
			return fmt.Errorf("cannot start %s again: %w", v.name, err)
		}
		d.tell("kill -9 of %s at %d events acknowledged and %s in the stream; started again after %.1f s", v.name, acknowledged, stored, time.Since(away).Seconds())
	}
	return wait.Pause(ctx, d.pause)
}

// stored is how many events are in the stream, as far as it can be seen.
func (d *outboxDemo) stored(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	n, err := d.count(ctx)
	if err != nil {
		return "?"
	}
	return fmt.Sprint(n)
}

func (d *outboxDemo) wake() { _ = d.nc.Publish(relay.WakeSubject(streams.Names{}, "shop"), nil) } // lossy is fine: the relay polls, too

func (d *outboxDemo) close() error {
	var err error
	for _, p := range []*demoProcess{d.relay, d.nats} {
		if p != nil && p.PID() != 0 {
			err = errors.Join(err, p.Kill())
		}
	}
	if d.nc != nil {
		d.nc.Close()
	}
	if d.cluster != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		err = errors.Join(err, d.cluster.Stop(ctx))
	}
	if d.dir != "" {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}

// FreeAddress is one on loopback where nobody listens now.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// Await tries again and again for half a minute.
func Await(ctx context.Context, what string, do func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := do()
		if err == nil {
			return nil
		}
		if wait.Pause(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("%s does not come up: %w", what, err)
		}
	}
}

// LastWords are the last lines of a file, for an error.
func LastWords(path string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}
