package operations

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/bcc94042/instar/internal/program"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// operator types what a document says, in a machine of his own: a directory that holds what /usr/local/bin and /etc/instar are in the document, with a systemctl that
// has one unit.
type operator struct {
	*part.T
	dir      string
	document string
	http     string // host:port
	nats     string
	env      []string
	unit     *rig.Process
	backup   string // name of the last one
	typed    int    // blocks
}

// stands are the paths of the documents, of which each operator has his own.
func (o *operator) stands(text string) string {
	return strings.NewReplacer("/usr/local/bin/", o.path("bin")+"/", "/etc/instar/", o.path("etc")+"/", "/var/lib/instar", o.path("data", "instar"), "/var/backups/instar", o.path("backups"),
		"instar-20260101T000000Z.backup", o.backup).Replace(text)
}

func (o *operator) path(parts ...string) string {
	return filepath.Join(append([]string{o.dir}, parts...)...)
}

// newOperator prepares the machine. installed is what is installed.
func newOperator(t *part.T, document, installed string) (*operator, error) {
	root, err := program.Root(t.Ctx)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		return nil, fmt.Errorf("cannot read the document: %w", err)
	}
	o := &operator{T: t, dir: t.Dir + "-machine", document: string(raw)}
	if o.http, err = rig.Port(); err != nil {
		return nil, err
	}
	if o.nats, err = rig.Port(); err != nil {
		return nil, err
	}
	for _, dir := range []string{"bin", "etc", "home", "data"} {
		if err := os.MkdirAll(o.path(dir), 0o700); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	systemd := &http.Server{Handler: http.HandlerFunc(o.systemctl)} // on loopback, for a minute
	go func() { _ = systemd.Serve(l) }()
	t.OnEnd(func() {
		_ = systemd.Close()
		if o.unit != nil {
			o.unit.Kill()
		}
	})
	systemctl := fmt.Sprintf("#!/bin/sh\nexec curl -fsS -X POST http://%s/$1/$2\n", l.Addr())
	if err := os.WriteFile(o.path("bin", "systemctl"), []byte(systemctl), 0o700); err != nil { // it is run
		return nil, err
	}
	if err := os.WriteFile(o.path("bin", "runuser"), []byte("#!/bin/sh\n[ \"$1 $2 $3\" = '-u instar --' ] || exit 1\nshift 3\nexec \"$@\"\n"), 0o700); err != nil { // it is run
		return nil, err
	}
	o.env = []string{"PATH=" + o.path("bin") + ":" + os.Getenv("PATH"), "INSTAR_SERVER=https://" + o.http, "INSTAR_CA=" + o.path("etc", "http.crt"), "HOME=" + o.path("home")}
	return o, o.install(installed)
}

// install is what the operator, or who set the machine up, has put there.
func (o *operator) install(program string) error {
	return exec.Command("install", "-m", "755", program, o.path("bin", "instar")).Run()
}

// systemctl stops and starts the unit instar: a start is over when it serves, as with Type=notify.
func (o *operator) systemctl(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/stop/instar":
		o.unit.Stop()
	case "/start/instar", "/restart/instar":
		if err := o.restart(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	default:
		http.Error(w, "it has no "+r.URL.Path, http.StatusNotImplemented)
	}
}

var fence = regexp.MustCompile("(?s)\n```sh\n(.*?)```")

// blocks are the commands of a section, block by block.
func blocks(document, section string) (list []string) {
	_, text, _ := strings.Cut("\n"+document, "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, found := range fence.FindAllStringSubmatch(text, -1) {
		list = append(list, found[1])
	}
	return list
}

// types runs a block as it stands, and gives what it said.
func (o *operator) types(section string, n int) (stdout, stderr string, err error) {
	list := blocks(o.document, section)
	if n >= len(list) {
		return "", "", fmt.Errorf("the section %q has %d blocks of commands", section, len(list))
	}
	var out, said strings.Builder
	cmd := exec.CommandContext(o.Ctx, "bash", "-euo", "pipefail", "-c", o.stands(list[n]))
	cmd.Dir, cmd.Stdout, cmd.Stderr = o.path("home"), &out, &said
	cmd.Env = append(os.Environ(), o.env...)
	o.typed++
	if err := cmd.Run(); err != nil {
		return "", "", fmt.Errorf("section %q, block %d: %w: %s%s", section, n+1, err, out.String(), said.String())
	}
	return out.String(), said.String(), nil
}
