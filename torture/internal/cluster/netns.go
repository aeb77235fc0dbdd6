package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// room is a network namespace with one wire to this one.
type room struct{ name, inside, outside, wire string }

// newRoom makes it, or says why that is not possible here.
func newRoom(t *part.T) (*room, error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, part.Skipped("it needs the program ip (iproute2), which is not here")
	}
	n := os.Getpid() % 200
	r := &room{name: fmt.Sprintf("instar-%d", n), wire: fmt.Sprintf("inst%d", n), outside: fmt.Sprintf("10.231.%d.1", n), inside: fmt.Sprintf("10.231.%d.2", n)}
	for _, line := range []string{
		"netns add " + r.name,
		"link add " + r.wire + " type veth peer name eth0 netns " + r.name,
		"addr add " + r.outside + "/24 dev " + r.wire,
		"link set " + r.wire + " up",
		"-n " + r.name + " addr add " + r.inside + "/24 dev eth0",
		"-n " + r.name + " link set eth0 up",
		"-n " + r.name + " link set lo up",
	} {
		if err := ip(line); err != nil {
			_ = ip("netns del " + r.name) // as far as it was made
			return nil, part.Skipped("no network namespace can be made here: " + err.Error())
		}
	}
	t.OnEnd(func() { _ = ip("netns del " + r.name) }) // takes the wire with it
	return r, nil
}

func ip(line string) error {
	out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// stale waits until a node says to those who are in its room that what it answers may be old, or does not any more. Its
// own copy of the instances may go on speaking to it all the while.
func stale(t *part.T, r *room, far *rig.Instar, want bool) error {
	what := map[bool]string{true: "the node that is cut off says that it may be behind", false: "the node that is back does not say that it may be behind"}[want]
	return rig.Until(t.Ctx, 20*time.Second, what, func() bool {
		out, err := exec.CommandContext(t.Ctx, "ip", "netns", "exec", r.name, t.Bin, "discover", "nobody", "-o", "json", "--server", "http://"+far.HTTP).Output()
		return err == nil && bytes.Contains(out, []byte(`"staleSeconds"`)) == want
	})
}

// CutOffNode takes the wire from a node of three and gives it back: its connections stay open and say nothing, and
// neither it nor the others are told.
func CutOffNode(t *part.T) error {
	r, err := newRoom(t)
	if err != nil {
		return err
	}
	x, err := newTrio(t, []string{r.outside, r.outside, r.inside}, func(c *rig.Cluster) {
		for _, i := range c.Instars {
			i.Args = append(i.Args, "--insecure")
		}
		c.Instars[2].In = []string{"ip", "netns", "exec", r.name}
	})
	if err != nil {
		return err
	}
	near, far := x.Instars[:2], x.Instars[2]
	if err := x.load(near...); err != nil {
		return err
	}
	for range t.Amount(1, 3) {
		if !wait.For(t.Ctx, t.Between(time.Second, 2*time.Second)) {
			return t.Ctx.Err()
		}
		if err := ip("link set " + r.wire + " down"); err != nil {
			return err
		}
		if err := x.others("cut off, until the others had all", far, 60*time.Second); err != nil {
			return err
		}
		if err := stale(t, r, far, true); err != nil {
			return err
		}
		wait.For(t.Ctx, t.Between(5*time.Second, 15*time.Second))
		if err := x.back("whole again, until it had its share", far, func() error { return ip("link set " + r.wire + " up") }); err != nil {
			return err
		}
		if err := stale(t, r, far, false); err != nil {
			return err
		}
	}
	return x.finish()
}
