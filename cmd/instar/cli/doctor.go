package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/build"
	"github.com/bcc94042/instar/server/config"
)

// The verdicts of a check.
const (
	fine = "ok"
	warn = "warn"
	fail = "fail"
)

// finding is what one check found.
type finding struct {
	Check   string `json:"check"`
	Verdict string `json:"verdict"`
	Detail  string `json:"detail"`
}

func doctorCommand(p *command.Program) *cobra.Command {
	cmd := command.ClientFlags(&cobra.Command{
		Use: "doctor", Short: "Check the server, this machine and the configuration", GroupID: command.GroupLook, Args: command.Arguments(),
		Long: "Runs all checks and prints a line for each. Exits with 1 when one of them fails.",
	})
	cmd.Flags().String("config", "", "configuration file to check; INSTAR_CONFIG")
	cmd.Flags().String("data", "", "data directory to check (default: that of the configuration, when the server is on this machine)")
	cmd.RunE = p.Asking(func(s *command.Session, cmd *cobra.Command, _ []string) error {
		cfg, found := checkConfig(cmd)
		found = append(append(found, checkCertificates(cfg, time.Now())...), checkServer(s)...)
		data, _ := cmd.Flags().GetString("data") // declared above
		if at, err := url.Parse(s.Base); data == "" && err == nil && config.Loopback(at.Host) {
			data = cfg.Data
		}
		if data != "" {
			found = append(found, checkData(data))
		}
		return diagnosis(s, append(found, checkFiles()))
	})
	return cmd
}

// diagnosis writes the findings, and fails when one of them has to be mended.
func diagnosis(s *command.Session, found []finding) error {
	bad := 0
	g := output.Grid{Titles: []string{"VERDICT", "CHECK", "DETAIL"}, Paint: func(column, text string) string {
		if column != "VERDICT" {
			return text
		}
		return s.Paint(map[string]string{fine: command.Green, warn: command.Yellow, fail: command.Red}[text], text)
	}}
	var raws []json.RawMessage
	for _, f := range found {
		if f.Verdict == fail {
			bad++
		}
		g.Add(f.Verdict, f.Check, f.Detail)
		raw, err := json.Marshal(f)
		if err != nil {
			return err
		}
		raws = append(raws, raw)
	}
	write := func() error { return s.Format.List(s.Out, raws) }
	if s.Format.Human() || s.Format == output.Name {
		write = func() error { return g.Write(s.Out) }
	}
	if err := write(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d checks failed", bad, len(found))
	}
	return nil
}

// checkConfig reads the configuration as serve would, and names variables that no option reads.
func checkConfig(cmd *cobra.Command) (config.Config, []finding) {
	cfg, err := config.Load(config.Serve, cmd.Flags(), os.Environ())
	f := finding{"configuration", fine, "valid"}
	if err != nil {
		f.Verdict, f.Detail = fail, strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	found := []finding{f}
	clients := []string{"CONFIG", "SERVER", "TOKEN", "NAMESPACE", "CA", "CONTEXT"}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		rest, ours := strings.CutPrefix(name, "INSTAR_")
		for _, c := range clients {
			ours = ours && rest != c
		}
		if ours && !config.ReadsEnv(name) {
			found = append(found, finding{"environment", warn, name + " is no option and is not read"})
		}
	}
	return cfg, found
}

// checkServer looks at a server from outside.
func checkServer(s *command.Session) []finding {
	begun := time.Now()
	resp, err := s.Do(s.Ctx, client.Request{Path: "/livez"})
	took := time.Since(begun)
	if err != nil {
		return []finding{{"server", fail, err.Error()}}
	}
	found := []finding{{"server", fine, fmt.Sprintf("%s answers in %s", s.Base, took.Round(time.Millisecond))}, checkClock(resp.Header, begun.Add(took/2))}
	return append(append(found, checkToken(s)), checkReady(s)...)
}

func checkToken(s *command.Session) finding {
	_, err := s.Do(s.Ctx, client.Request{Path: "/v1/machines"})
	switch {
	case err != nil:
		return finding{"token", fail, err.Error()}
	case s.Token == "":
		return finding{"token", fine, "none is needed"}
	}
	return finding{"token", fine, "accepted"}
}

// maxSkew is how far clocks may be apart: the header has whole seconds, timers and tokens bear that much.
const maxSkew = 3 * time.Second

func checkClock(h http.Header, at time.Time) finding {
	theirs, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return finding{"clock", warn, "the server sends no time"}
	}
	skew := at.Sub(theirs).Truncate(time.Second)
	if skew > maxSkew || skew < -maxSkew {
		return finding{"clock", fail, fmt.Sprintf("this machine is %s away from the server: deadlines and ages are wrong", skew)}
	}
	return finding{"clock", fine, "within " + maxSkew.String() + " of the server"}
}

// checkReady asks the server for its own checks, and compares the versions.
func checkReady(s *command.Session) []finding {
	resp, err := s.Do(s.Ctx, client.Request{Path: "/readyz", Query: url.Values{"verbose": {""}}})
	var body []byte
	var p *client.Problem
	switch {
	case err == nil:
		body = resp.Body
	case errors.As(err, &p) && p.Status == http.StatusServiceUnavailable:
		body = p.Body
	default:
		return []finding{{"ready", fail, err.Error()}}
	}
	var h struct {
		Status string `json:"status"`
		Checks []struct {
			Name   string `json:"name"`
			OK     bool   `json:"ok"`
			Warn   bool   `json:"warn"`
			Detail string `json:"detail"`
		} `json:"checks"`
		Version *build.Info    `json:"version"`
		Profile string         `json:"profile"`
		Buffers []admin.Buffer `json:"buffers"`
	}
	if err := json.Unmarshal(body, &h); err != nil {
		return []finding{{"ready", fail, "the server's health is not as expected: " + err.Error()}}
	}
	found := []finding{{"ready", verdict(err == nil, fail), strings.TrimSpace(h.Status + " " + h.Profile)}}
	for _, c := range h.Checks {
		f := finding{"ready: " + c.Name, verdict(c.OK, fail), c.Detail}
		if c.OK && c.Warn {
			f.Verdict = warn
		}
		found = append(found, f)
	}
	for _, b := range h.Buffers {
		found = append(found, finding{"bound: " + b.Name, fine, b.Bound})
	}
	if h.Version != nil {
		mine := s.Program.Build.Filled().Version
		found = append(found, finding{"version", verdict(h.Version.Version == mine, warn), fmt.Sprintf("server %s, this program %s", h.Version.Version, mine)})
	}
	return found
}

func verdict(ok bool, otherwise string) string {
	if ok {
		return fine
	}
	return otherwise
}

// Marks of file systems (statfs(2)) on which the embedded server's files are not safe, or not fast.
var filesystems = map[int64]struct{ name, trouble string }{
	0x6969:     {"nfs", "fsync and locks over a network are not what the server needs"},
	0x517b:     {"smb", "fsync and locks over a network are not what the server needs"},
	0xfe534d42: {"smb2", "fsync and locks over a network are not what the server needs"},
	0xff534d42: {"cifs", "fsync and locks over a network are not what the server needs"},
	0x65735546: {"fuse", "whether fsync reaches a disk depends on what is behind it"},
	0x01021994: {"tmpfs", "it is gone when the machine stops"},
	0x794c7630: {"overlayfs", "the layer of a container is gone with it; use a volume"},
	0xef53:     {"ext4", ""},
	0x58465342: {"xfs", ""},
	0x9123683e: {"btrfs", ""},
	0x2fc12fc1: {"zfs", ""},
}

// The free space below which nothing should be started, and below which somebody should look.
const (
	leastSpace = 256 << 20
	someSpace  = 2 << 30
)

func checkData(dir string) finding {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return finding{"data", warn, fmt.Sprintf("%s: %v", dir, err)}
	}
	free := st.Bavail * uint64(st.Bsize)
	fs := filesystems[int64(st.Type)]
	text := strings.TrimSpace(fmt.Sprintf("%s: %.1f GiB free %s", dir, float64(free)/(1<<30), fs.name))
	switch {
	case free < leastSpace:
		return finding{"data", fail, text + ": a full disk stops the server"}
	case fs.trouble != "":
		return finding{"data", warn, text + ": " + fs.trouble}
	case free < someSpace:
		return finding{"data", warn, text + ": little room"}
	}
	return finding{"data", fine, text}
}

// leastFiles is what the embedded server and the services' sockets may need together.
const leastFiles = 4096

func checkFiles() finding {
	most, err := server.OpenFiles()
	if err != nil {
		return finding{"open files", warn, err.Error()}
	}
	f := finding{"open files", fine, fmt.Sprintf("up to %d", most)}
	if most < leastFiles {
		f.Verdict, f.Detail = warn, fmt.Sprintf("up to %d; a server needs %d (ulimit -n, LimitNOFILE)", most, leastFiles)
	}
	return f
}
