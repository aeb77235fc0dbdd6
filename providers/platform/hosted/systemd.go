package hosted

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
)

// Systemd runs releases as transient services of the system's manager, or of the user's where this server is not root. They become no other user, and what they write goes into the journal.
type Systemd struct {
	// Run runs systemd-run, systemctl and journalctl, and returns what they wrote; nil runs those of PATH.
	Run func(ctx context.Context, name string, args ...string) ([]byte, error)
}

// Kind is systemd.
func (s *Systemd) Kind() string { return "systemd" }

// Check fails for a program without a command.
func (s *Systemd) Check(p app.Program) error {
	if len(p.Command) == 0 {
		return providers.Errorf(providers.Invalid, "the kind systemd runs commands, and a version has none")
	}
	return nil
}

// Prepare gets nothing: commands are there.
func (s *Systemd) Prepare(context.Context, app.Program, func(string)) error { return nil }

func (s *Systemd) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	if os.Getuid() != 0 {
		args = append([]string{"--user"}, args...)
	}
	do := s.Run
	if do == nil {
		do = run
	}
	out, err := do(ctx, name, args...)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return out, err
}

// run runs a program, whose error has what it wrote about it.
func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...) // #nosec G204 -- the tools of systemd
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %s", name, cmp.Or(strings.TrimSpace(said.String()), err.Error()))
	}
	return out, err
}

// properties are those of every release. It is started again without end: what has failed before it was healthy is removed.
var properties = []string{
	"Restart=always", "RestartSec=1", "StartLimitIntervalSec=0", "KillMode=control-group", "TimeoutStopSec=10", "NoNewPrivileges=yes", "LimitCORE=0", "PrivateTmp=yes",
	"ProtectSystem=full",
}

// Start makes a transient service. One that is there stays, and is started if it stands still.
func (s *Systemd) Start(ctx context.Context, u *Unit) error {
	now, err := s.show(ctx, u)
	switch {
	case err != nil:
		return err
	case now["LoadState"] == "loaded" && stopped(now):
		if _, err = s.run(ctx, "systemctl", "start", u.Name+".service"); err != nil && ctx.Err() == nil {
			return providers.Errorf(providers.Unavailable, "cannot start %s: %v", u.Name, err)
		}
		return err
	case now["LoadState"] == "loaded":
		return nil
	}
	args := []string{"--quiet", "--collect", "--unit=" + u.Name, "--description=" + u.description(), "--working-directory=" + u.Home}
	for _, p := range properties {
		args = append(args, "--property="+p)
	}
	args = append(args, "--property=LimitNOFILE="+strconv.Itoa(cmp.Or(u.Limits.Files, 1024)))
	if u.Limits.Memory > 0 {
		args = append(args, "--property=MemoryMax="+strconv.FormatInt(u.Limits.Memory, 10))
	}
	if u.Limits.CPU > 0 {
		args = append(args, fmt.Sprintf("--property=CPUQuota=%g%%", float64(u.Limits.CPU)/10))
	}
	if u.Limits.Processes > 0 {
		args = append(args, "--property=TasksMax="+strconv.Itoa(u.Limits.Processes))
	}
	env := maps.Clone(u.Env)
	env["HOST"] = u.Host
	for _, pair := range pairs(env) {
		args = append(args, "--setenv="+pair)
	}
	if _, err = s.run(ctx, "systemd-run", append(append(args, "--"), u.Program.Command...)...); err != nil && ctx.Err() == nil {
		return providers.Errorf(providers.Unavailable, "cannot start %s: %v", u.Name, err)
	}
	return err
}

// stopped reports whether a service does not start by itself.
func stopped(now map[string]string) bool {
	return now["ActiveState"] == "inactive" || now["ActiveState"] == "failed"
}

// description says whose a service is.
func (u *Unit) description() string {
	return "Release of a tenant of the installation " + u.Installation
}

// show are properties of a service that is this installation's. systemctl tells them of one that is not there as well.
func (s *Systemd) show(ctx context.Context, u *Unit) (map[string]string, error) {
	name := u.Name
	out, err := s.run(ctx, "systemctl", "show", "--property=Description,LoadState,ActiveState,NRestarts,ExecMainStatus", name+".service")
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, providers.Errorf(providers.Unavailable, "systemd does not tell of %s: %v", name, err)
	}
	now := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), "="); found {
			now[key] = value
		}
	}
	if now["LoadState"] == "loaded" && u.Installation != "" && now["Description"] != u.description() {
		return nil, u.anothers("systemd")
	}
	return now, nil
}

// Look tells of a service.
func (s *Systemd) Look(ctx context.Context, u *Unit) (State, error) {
	name := u.Name
	now, err := s.show(ctx, u)
	if err != nil {
		return State{}, err
	}
	if now["LoadState"] != "loaded" {
		return State{}, providers.Errorf(providers.NotFound, "systemd has no service %s", name)
	}
	at := State{Running: now["ActiveState"] == "active", Stopped: stopped(now)}
	if at.Ends, err = strconv.Atoi(cmp.Or(now["NRestarts"], "0")); err != nil {
		return State{}, providers.Errorf(providers.Internal, "systemd tells of %s what cannot be read: %v", name, err)
	}
	if !at.Running || at.Ends > 0 {
		at.Message = "exit code " + now["ExecMainStatus"]
		// What cannot be read is only missing.
		if out, err := s.run(ctx, "journalctl", "--quiet", "--output=json", "--lines=2", "_SYSTEMD_UNIT="+name+".service", "+", "_SYSTEMD_USER_UNIT="+name+".service"); err == nil {
			if line := lastEntry(out); line != "" {
				at.Message += ": " + line
			}
		}
	}
	return at, nil
}

// entry is one of the journal.
type entry struct {
	Message json.RawMessage `json:"MESSAGE"`     // null where it is long
	Stream  string          `json:"_STREAM_ID"`  // of what was written to the output; empty of what was sent to the journal in another way
	Break   string          `json:"_LINE_BREAK"` // why it ends where no line does
}

// within reports whether a line goes on after an entry, as the journal cuts long ones, and those that two processes write.
func (e *entry) within() bool { return e.Break == "line-max" || e.Break == "pid-change" }

// lastEntry is the last line of the last two entries of a journal. What is a part of a line may begin or end within a secret, which nobody would find there: it is not told. Nor is what may be one, as
// the entry before is not of the output.
func lastEntry(out []byte) string {
	var before, last entry
	n := 0
	for line := range bytes.Lines(out) {
		before, last = last, entry{}
		if json.Unmarshal(line, &last) != nil {
			return ""
		}
		n++
	}
	if last.within() || n > 1 && last.Stream != "" && (before.Stream == "" || before.Stream == last.Stream && before.within()) {
		return ""
	}
	var text string
	if json.Unmarshal(last.Message, &text) != nil {
		var numbers []int // the bytes of what is not all printable
		if json.Unmarshal(last.Message, &numbers) != nil {
			return ""
		}
		raw := make([]byte, len(numbers))
		for i, b := range numbers {
			raw[i] = byte(b)
		}
		text = string(raw)
	}
	return strings.TrimSpace(text)
}

// Remove stops a service, of which nothing stays.
func (s *Systemd) Remove(ctx context.Context, u *Unit) error {
	name := u.Name
	if _, err := s.show(ctx, u); err != nil {
		return err
	}
	_, errStop := s.run(ctx, "systemctl", "stop", name+".service")
	_, errReset := s.run(ctx, "systemctl", "reset-failed", name+".service")
	now, err := s.show(ctx, u)
	switch {
	case err != nil:
		return err
	case now["LoadState"] == "loaded":
		return providers.Errorf(providers.Unavailable, "systemd does not end %s: %v", name, cmp.Or(errStop, errReset))
	}
	return nil
}
