package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/server/config"
)

// clusterCommand starts clusters on this machine.
func clusterCommand() *cobra.Command {
	g := command.Group("cluster", "Start a cluster on this machine, to try things out")
	g.GroupID = command.GroupServer
	dev := &cobra.Command{
		Use: "dev", Short: "Start three nodes on loopback and show their status", Args: command.Arguments(),
		Long: `Starts three servers as children of this process, each with an embedded NATS server that is a member of one JetStream
cluster, and shows a table of them until it is interrupted; then it stops them. A node that ends meanwhile, killed with -9
for one, is started again 20 s later, so that the others are seen to do without it. Their data is kept in node-1 to node-3
below --data, and what they say in node-1.log to node-3.log. They are found again at the next start.`,
		Example: "  instar cluster dev\n  instar cluster dev --data /tmp/three --http 127.0.0.1:9080 --nats 127.0.0.1:5222",
	}
	fs := dev.Flags()
	fs.String("data", "./data", "directory of the nodes")
	fs.String("http", "127.0.0.1:8080", "address of the API of the first node, on 127.0.0.1; the others have the next ports")
	fs.String("nats", "127.0.0.1:4222", "of NATS of the first node, likewise; 2000 above are the ports of the cluster")
	fs.String("durability", "interval", "fsync, interval or os")
	fs.String("gateway", config.DefaultGateway(), "what runs services: process or simulated")
	dev.RunE = func(cmd *cobra.Command, _ []string) error {
		d := devCluster{out: cmd.OutOrStdout(), tty: command.Terminal(cmd.OutOrStdout())}
		d.data, _ = fs.GetString("data") // all are declared above
		for flag, port := range map[string]*int{"http": &d.http, "nats": &d.nats} {
			address, _ := fs.GetString(flag)
			host, text, err := net.SplitHostPort(address)
			if err == nil {
				*port, err = strconv.Atoi(text)
			}
			if err != nil || host != "127.0.0.1" {
				return command.Usagef("--%s: %q is not 127.0.0.1 with a port", flag, address)
			}
		}
		d.durability, _ = fs.GetString("durability")
		d.gateway, _ = fs.GetString("gateway")
		for _, port := range []int{d.http, d.nats} {
			if port < 1 || port+2000+members > 65535 {
				return command.Usagef("port %d is not between 1 and %d", port, 65535-2000-members)
			}
		}
		return d.run(cmd.Context())
	}
	g.AddCommand(dev)
	return g
}

const members = 3

// devCluster is three children and a table of them.
type devCluster struct {
	data, durability, gateway string
	http, nats                int
	out                       io.Writer
	tty                       bool

	children []*exec.Cmd
	lines    int // of the table on the terminal
	last     string
}

func (d *devCluster) name(i int) string { return fmt.Sprintf("node-%d", i+1) }
func (d *devCluster) url(i int) string  { return "http://" + loopbackPort(d.http+i) }

func loopbackPort(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// end is that of a child.
type end struct {
	node int
	err  error
}

// restartAfter is how long the others are seen to do without one that was killed.
const restartAfter = 20 * time.Second

// run starts the children and shows them until ctx ends. One that ends before all were ready ends the others; later it is
// started again.
func (d *devCluster) run(ctx context.Context) error {
	if err := os.MkdirAll(d.data, 0o700); err != nil {
		return fmt.Errorf("cannot make the data directory: %w", err)
	}
	ended := make(chan end, members)
	var running sync.WaitGroup
	defer running.Wait()
	start := func(i int) error {
		c, err := d.start(i)
		if err != nil {
			return err
		}
		d.children[i] = c
		running.Go(func() { ended <- end{i, c.Wait()} })
		return nil
	}
	d.children = make([]*exec.Cmd, members)
	for i := range members {
		if err := start(i); err != nil {
			d.stop()
			return err
		}
	}
	defer d.stop()
	fmt.Fprintf(d.out, "Three nodes are starting. Data: %s/node-1 to node-3; logs: node-1.log to node-3.log.\n", d.data)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	hinted, again := false, make(chan int, members)
	for {
		ready := d.show(ctx)
		if ready && !hinted {
			hinted = true
			d.hint()
		}
		select {
		case <-ctx.Done():
			fmt.Fprintln(d.out, "Stopping the nodes.")
			return nil
		case e := <-ended:
			if ctx.Err() != nil {
				return nil
			}
			if !hinted { // it cannot run: a port is taken, for one
				return fmt.Errorf("%s ended: %w; what it said is in %s", d.name(e.node), cmp.Or(e.err, errors.New("it was told to stop")), d.log(e.node))
			}
			d.say("%s ended (%v); it is started again in %s", d.name(e.node), cmp.Or(e.err, errors.New("it was told to stop")), restartAfter)
			time.AfterFunc(restartAfter, func() { again <- e.node })
		case i := <-again:
			if err := start(i); err != nil {
				return err
			}
		case <-tick.C:
		}
	}
}

func (d *devCluster) log(i int) string { return filepath.Join(d.data, d.name(i)+".log") }

// start runs one child. It is in a group of its own, so that an interrupt of the terminal reaches it by this process only.
func (d *devCluster) start(i int) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program: %w", err)
	}
	log, err := os.OpenFile(d.log(i), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log of %s: %w", d.name(i), err)
	}
	defer log.Close()
	var routes []string
	for j := range members {
		routes = append(routes, "nats://"+loopbackPort(d.nats+2000+j))
	}
	c := exec.Command(self, "serve", "--node", d.name(i), "--data", filepath.Join(d.data, d.name(i)), "--http", loopbackPort(d.http+i), "--nats", loopbackPort(d.nats+i), // #nosec G204 -- this program
		"--cluster", "dev", "--cluster-listen", loopbackPort(d.nats+2000+i), "--cluster-routes", strings.Join(routes, ","), "--durability", d.durability, "--gateway", d.gateway, "--insecure")
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", d.name(i), err)
	}
	return c, nil
}

// stop tells all children to stop; run waits for them. One that does not is killed.
func (d *devCluster) stop() {
	for _, c := range d.children {
		if c == nil {
			continue
		}
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		time.AfterFunc(25*time.Second, func() { _ = c.Process.Kill() })
	}
}

// say puts a line below the table, which begins anew under it.
func (d *devCluster) say(format string, args ...any) {
	fmt.Fprintf(d.out, "\n"+format+"\n\n", args...)
	d.lines = 0
}

func (d *devCluster) hint() {
	fmt.Fprintf(d.out, `
Try, in another terminal:
  %[1]s node ls --server %[2]s
  %[1]s service create web --image hello --server %[3]s --wait
  kill -9 %[4]d        # node-3: the others take its partitions within ten seconds, and it comes back after %[5]s

Stop with Ctrl-C.

`, os.Args[0], d.url(0), d.url(1), d.children[2].Process.Pid, restartAfter)
	d.lines = 0
}

// row is what one node says about itself.
type row struct {
	status string
	nodes  []clusterNode
	leads  struct {
		Streams   int
		Consumers int
		Meta      bool
	}
	behind uint64
	heard  bool
}

// ask reads one node.
func (d *devCluster) ask(ctx context.Context, i int) row {
	c := &http.Client{Timeout: 700 * time.Millisecond}
	get := func(path string, into any) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url(i)+path, nil)
		if err != nil {
			return 0, err
		}
		resp, err := c.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		return resp.StatusCode, json.NewDecoder(resp.Body).Decode(into)
	}
	r := row{status: "away"}
	var health struct {
		Indexes []struct{ Behind uint64 }
	}
	status, err := get("/readyz?verbose", &health)
	if err != nil {
		return r
	}
	if r.status = "ready"; status != http.StatusOK {
		r.status = "not ready"
	}
	for _, ix := range health.Indexes {
		r.behind = max(r.behind, ix.Behind)
	}
	var list struct {
		Items json.RawMessage
		Leads *struct {
			Streams   int
			Consumers int
			Meta      bool
		}
	}
	if _, err := get("/v1/nodes", &list); err != nil {
		return r
	}
	if list.Leads != nil {
		r.leads = *list.Leads
	}
	r.nodes, err = readNodes(append(append([]byte(`{"items":`), list.Items...), '}'))
	r.heard = err == nil
	return r
}

// show prints the table, over the one before it on a terminal, and only when it has changed elsewhere. It reports
// whether all nodes are ready.
func (d *devCluster) show(ctx context.Context) bool {
	rows := make([]row, members)
	var all sync.WaitGroup
	for i := range rows {
		all.Go(func() { rows[i] = d.ask(ctx, i) })
	}
	all.Wait()
	var view []clusterNode
	ready := true
	for _, r := range rows {
		ready = ready && r.status == "ready"
		if r.heard && len(r.nodes) > len(view) {
			view = r.nodes
		}
	}
	g := output.Grid{Titles: []string{"NODE", "IS", "STATE", "PARTITIONS", "ROLES", "LEADS (STREAMS, CONSUMERS)", "INDEX BEHIND", "URL"}}
	for i, r := range rows {
		state, parts, roles := "-", "-", ""
		for _, n := range view {
			if n.Name == d.name(i) {
				state, parts, roles = n.state(), fmt.Sprint(len(n.Partitions)), strings.Join(n.Roles, ",")
			}
		}
		leads := "-"
		if r.heard {
			leads = fmt.Sprintf("%d, %d", r.leads.Streams, r.leads.Consumers)
			if r.leads.Meta {
				leads += ", the cluster"
			}
		}
		g.Add(d.name(i), r.status, state, parts, roles, leads, fmt.Sprint(r.behind), d.url(i))
	}
	var text strings.Builder
	if err := errors.Join(g.Write(&text), ctx.Err()); err != nil {
		return false
	}
	d.print(text.String())
	return ready
}

func (d *devCluster) print(table string) {
	switch {
	case d.tty:
		if d.lines > 0 {
			fmt.Fprintf(d.out, "\x1b[%dA\x1b[J", d.lines)
		}
		fmt.Fprint(d.out, cut(table, d.width()))
		d.lines = strings.Count(table, "\n")
	case table != d.last:
		fmt.Fprint(d.out, time.Now().Format(time.TimeOnly)+"\n"+table)
	}
	d.last = table
}

// width is that of the terminal, or 0 when it does not say.
func (d *devCluster) width() int {
	f, ok := d.out.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ) // a file descriptor
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// cut shortens lines that are wider than the terminal: were they wrapped, the table would be higher than it has lines,
// and the next one would be drawn below a part of it.
func cut(table string, width int) string {
	if width == 0 {
		return table
	}
	lines := strings.Split(table, "\n")
	for i, line := range lines {
		if r := []rune(line); len(r) > width {
			lines[i] = string(r[:width])
		}
	}
	return strings.Join(lines, "\n")
}
