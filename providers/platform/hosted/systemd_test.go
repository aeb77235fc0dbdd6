package hosted_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/app"
	"github.com/bcc94042/instar/providers/platform/app/apptest"
	"github.com/bcc94042/instar/providers/platform/hosted"
)

// manager does what the tools of systemd are told, as processes of this machine.
type manager struct {
	apptest.Machine
	asked     []string // of the last unit
	mu        sync.Mutex
	described map[string]string // by name
}

func (m *manager) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	args = slices.DeleteFunc(args, func(s string) bool { return s == "--user" })
	unit := strings.TrimSuffix(args[len(args)-1], ".service")
	switch {
	case name == "systemd-run":
		return nil, m.begin(args)
	case name == "journalctl":
		s, _ := m.Machine.Look(strings.TrimPrefix(unit, "_SYSTEMD_USER_UNIT="))
		line, err := json.Marshal(map[string]string{"MESSAGE": s.Last, "_STREAM_ID": "1"})
		return append(line, '\n'), err
	case args[0] == "show":
		s, there := m.Machine.Look(unit)
		if !there {
			return []byte("LoadState=not-found\nActiveState=inactive\nNRestarts=0\nExecMainStatus=0\n"), nil
		}
		active := "activating"
		if s.Running {
			active = "active"
		}
		return fmt.Appendf(nil, "Description=%s\nLoadState=loaded\nActiveState=%s\nNRestarts=%d\nExecMainStatus=%d\n", m.description(unit, ""), active, s.Ends, s.Code), nil
	case args[0] == "stop" && m.Remove(unit):
		return nil, nil
	}
	return nil, fmt.Errorf("unit %s.service not loaded", unit)
}

func (m *manager) begin(args []string) error {
	end := slices.Index(args, "--")
	if end < 0 {
		return errors.New("no command")
	}
	var name, description string
	run := &apptest.Job{Command: args[end+1:]}
	for _, a := range args[:end] {
		key, value, _ := strings.Cut(a, "=")
		switch key {
		case "--unit":
			name = value
		case "--description":
			description = value
		case "--working-directory":
			run.Dir = value
		case "--setenv":
			run.Environ = append(run.Environ, value)
		}
	}
	m.asked = args[:end]
	m.description(name, description)
	run.Environ = environ(run.Environ)
	return m.Start(name, run)
}

// description is that of a unit, set where it is not empty.
func (m *manager) description(name, is string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.described == nil {
		m.described = map[string]string{}
	}
	if is != "" {
		m.described[name] = is
	}
	return m.described[name]
}

func TestAnothersServiceIsLeftAlone(t *testing.T) {
	t.Parallel()
	var asked []string
	s := &hosted.Systemd{Run: func(_ context.Context, name string, args ...string) ([]byte, error) {
		asked = append(asked, strings.Join(append([]string{name}, args...), " "))
		return []byte("Description=something else\nLoadState=loaded\nActiveState=active\nNRestarts=0\nExecMainStatus=0\n"), nil
	}}
	u := &hosted.Unit{Name: "it", Installation: installation}
	_, err := s.Look(t.Context(), u)
	for _, err := range []error{err, s.Start(t.Context(), u), s.Remove(t.Context(), u)} {
		require.True(t, providers.IsInvalid(err), "%v", err)
	}
	for _, a := range asked {
		require.Contains(t, a, " show ")
	}
}

func TestSystemdKeepsTheContract(t *testing.T) {
	t.Parallel()
	apptest.Run(t, apptest.Suite{World: func(t *testing.T) apptest.World {
		m := &manager{}
		return world(t, &hosted.Systemd{Run: m.run}, &m.Machine)
	}})
}

func TestWhatAUnitIsAskedFor(t *testing.T) {
	t.Parallel()
	m := &manager{}
	w := world(t, &hosted.Systemd{Run: m.run}, &m.Machine)
	p, stop := w.Open(t)
	defer stop()
	r := apptest.Release(1, "1.0")
	r.Limits = app.Limits{Memory: 1 << 30, Processes: 99, CPU: 1500}
	address, err := p.Deploy(t.Context(), r)
	require.NoError(t, err)
	has := apptest.Ask(t, address)
	require.Equal(t, has.Home, has.Work)
	require.Equal(t, address, "127.0.0.1:"+has.Port)
	for _, want := range []string{"--collect", "--unit=instar-abcdefgh-default.tenant-acme-r1", "--property=NoNewPrivileges=yes", "--property=Restart=always", "--property=LimitCORE=0", "--property=LimitNOFILE=1024", "--property=MemoryMax=1073741824", "--property=TasksMax=99", "--property=CPUQuota=150%", "--setenv=HOST=127.0.0.1"} {
		require.Contains(t, m.asked, want)
	}
	require.NotContains(t, strings.Join(m.asked, " "), "secret@db")
}

func TestAServiceThatStandsStillIsStarted(t *testing.T) {
	t.Parallel()
	var asked []string
	s := &hosted.Systemd{Run: func(_ context.Context, name string, args ...string) ([]byte, error) {
		asked = append(asked, name+" "+strings.Join(args, " "))
		return []byte("LoadState=loaded\nActiveState=inactive\nNRestarts=0\nExecMainStatus=0\n"), nil
	}}
	at, err := s.Look(t.Context(), &hosted.Unit{Name: "it"})
	require.NoError(t, err)
	require.True(t, at.Stopped)
	require.NoError(t, s.Start(t.Context(), &hosted.Unit{Name: "it"}))
	require.Contains(t, asked[len(asked)-1], "start it.service")
}

// The whole contract against the manager of this machine, where systemd is that.
func TestARealManager(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("systemd does not run here, so what is asked of it was only asked of a fake one: ", err)
	}
	if os.Getuid() != 0 && os.Getenv("XDG_RUNTIME_DIR") == "" {
		t.Skip("this user has no manager")
	}
	s := &hosted.Systemd{}
	_, err := s.Look(t.Context(), &hosted.Unit{Name: "instar-there-is-none"})
	require.Error(t, err)
	require.NoError(t, s.Remove(t.Context(), &hosted.Unit{Name: "instar-there-is-none"}))
}
