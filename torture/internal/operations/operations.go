package operations

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/selfsigned"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

const operationsDoc = "docs/operations.md"

// Operated does under load what docs/operations.md says, by its own commands: a server of the last release is upgraded, taken back, and upgraded again; its token,
// its certificate and a password are rotated; its store is filled, and room made; at the end its streams are lost, and restored. The disk itself is filled by the part disk.
func Operated(t *part.T) error {
	nats, err := exec.LookPath("nats")
	if err != nil {
		return part.Skipped("the nats CLI is not here (make torture brings it)")
	}
	old, err := rig.BuildRelease(t.Ctx, t.Dir+"-release")
	if errors.Is(err, rig.ErrNoRelease) && t.Ctx.Err() == nil {
		return part.Skipped(err.Error())
	}
	if err != nil {
		return err
	}
	op, err := newOperator(t, operationsDoc, old)
	if err != nil {
		return err
	}
	o := &operation{operator: op, via: &door{}}
	o.env = append(o.env, "PATH="+o.path("bin")+":"+filepath.Dir(nats)+":"+os.Getenv("PATH"))
	if err := o.begin(); err != nil {
		return err
	}
	journal := &load.Journal{}
	crowd := &load.Crowd{Name: "c", Clients: 4, Entities: 40, Bases: []string{"https://" + o.http}, Seed: t.Seed, Think: 100 * time.Millisecond, Patience: 20, Journal: journal, Via: o.via}
	if err := crowd.Start(t.Ctx); err != nil {
		return err
	}
	for _, step := range []func() error{o.upgrade, o.rotateToken, o.rotateUser, o.renewCertificate, o.fillStore} {
		if err := step(); err != nil {
			return err
		}
	}
	crowd.Finish(40 * time.Second)
	r, err := t.Reader(o.natsURL("ops-2"))
	if err != nil {
		return err
	}
	t.Violations += int(o.via.refused.Load())
	if err := t.SettleAndJudge(r, journal, 60*time.Second, nil); err != nil {
		return err
	}
	err = o.restore()
	t.Say("%d blocks of commands of %s were typed; %d requests were refused for their token", o.typed, operationsDoc, o.via.refused.Load())
	return err
}

// operation is an operator with a server and its clients.
type operation struct {
	*operator
	via    *door
	tokens []string // lines of the configuration, one token each
	users  []string // likewise
}

// door is how clients reach the server: they know a token, and look at its certificate.
type door struct {
	token   atomic.Pointer[string]
	serial  atomic.Int64 // of the certificate that was shown last
	refused atomic.Int64 // answers that it was not good
	over    http.Transport
}

func (d *door) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+*d.token.Load())
	res, err := d.over.RoundTrip(r)
	if err == nil && (res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden) {
		d.refused.Add(1)
	}
	return res, err
}

// begin sets the server up, with the last release, a token and a certificate.
func (o *operation) begin() error {
	o.via.over = http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Second, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, // which one is shown is what is looked at
		VerifyConnection: func(c tls.ConnectionState) error {
			o.via.serial.Store(c.PeerCertificates[0].SerialNumber.Int64())
			return nil
		},
	}}
	if err := selfsigned.Write(1, o.path("etc", "http.crt"), o.path("etc", "http.key")); err != nil {
		return err
	}
	secret, lines, err := o.newToken("ci")
	if err != nil {
		return err
	}
	o.tokens = []string{lines}
	o.use(secret)
	if err := o.configure(); err != nil {
		return err
	}
	return o.restart()
}

// newToken has a program make a token.
func (o *operation) newToken(name string) (secret, lines string, err error) {
	cmd := exec.CommandContext(o.Ctx, o.path("bin", "instar"), "token", name, "--role", "admin")
	var told strings.Builder
	cmd.Stderr = &told
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), tokenLines(told.String()), err
}

// tokenLines are what stands below auth.tokens in what instar token says.
func tokenLines(said string) string {
	_, lines, _ := strings.Cut(said, "  tokens:\n")
	return lines
}

func (o *operation) use(token string) {
	o.via.token.Store(&token)
	o.env = append(o.env, "INSTAR_TOKEN="+token)
}

// configure writes the configuration. What both versions know is in it, unless there are users, who have a role in the new one.
func (o *operation) configure() error {
	text := fmt.Sprintf("data: %s\ndurability: interval\ngateway: simulated\nhttp:\n  listen: %s\n  tls:\n    cert: %s\n    key: %s\nnats:\n  listen: %s\n",
		o.path("data", "instar"), o.http, o.path("etc", "http.crt"), o.path("etc", "http.key"), o.nats)
	if len(o.users) > 0 {
		text += "  users:\n"
		for _, u := range o.users {
			text += fmt.Sprintf("    - {name: %s, password: %s-secret, role: admin}\n", u, u)
		}
		text += "store:\n  max: 48MiB\n  events: 16MiB\n"
	}
	text += "observe: {every: 2s, readyStale: 2s}\nlog: {level: warn}\nauth:\n  tokens:\n" + strings.Join(o.tokens, "")
	return os.WriteFile(o.path("etc", "instar.yaml"), []byte(text), 0o600)
}

func (o *operation) natsURL(user string) string {
	return fmt.Sprintf("nats://%s:%s-secret@%s", user, user, o.nats)
}

// restart ends the unit and starts it again.
func (o *operator) restart() error {
	if o.unit != nil {
		o.unit.Stop()
	}
	var err error
	if o.unit, err = rig.Run(o.path("log"), nil, o.path("bin", "instar"), "serve", "--config", o.path("etc", "instar.yaml")); err != nil {
		return err
	}
	c := &http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // its own
	err = rig.Until(o.Ctx, 30*time.Second, "it serves", func() bool {
		res, err := c.Get("https://" + o.http + "/livez")
		if err != nil {
			return !o.unit.Running()
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	if err == nil && !o.unit.Running() {
		err = errors.New("it ended")
	}
	if err != nil {
		said, _ := os.ReadFile(o.path("log"))
		return fmt.Errorf("%w: %s", err, said[max(0, len(said)-2000):])
	}
	return nil
}

// upgrade goes forth, back, and forth.
func (o *operation) upgrade() error {
	for _, n := range []int{0, 1, 0} {
		if n == 0 {
			if err := exec.Command("cp", o.Bin, o.path("home", "instar")).Run(); err != nil {
				return err
			}
		}
		began := time.Now()
		if _, _, err := o.types("Upgrades", n); err != nil {
			return err
		}
		took := part.Since(began)
		serves, err := o.version()
		if err != nil {
			return err
		}
		if old := serves == rig.LastRelease[:7]; old != (n == 1) {
			o.Violations++
			o.Say("VIOLATION upgrade: after block %d it is version %s that serves", n+1, serves)
		}
		o.Say("%s to version %s took %s", []string{"an upgrade", "going back"}[n], serves, took)
		wait.For(o.Ctx, o.Between(time.Second, 3*time.Second))
	}
	return nil
}

// version is what the server says that it is.
func (o *operation) version() (string, error) {
	res, err := (&http.Client{Transport: o.via}).Get("https://" + o.http + "/readyz?verbose")
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var said struct{ Version struct{ Version string } }
	err = json.NewDecoder(res.Body).Decode(&said)
	return said.Version.Version, err
}

// rotateToken makes a token beside the one that there is, changes the clients to it, and takes the old one away.
func (o *operation) rotateToken() error {
	secret, said, err := o.types("Rotating", 0)
	if err != nil {
		return err
	}
	old := *o.via.token.Load()
	lines := strings.Replace(tokenLines(said), "role: operate", "role: admin", 1) // one of the clients purges
	for _, tokens := range [][]string{append(o.tokens, lines), {lines}} {
		if o.tokens = tokens; len(tokens) == 1 {
			o.use(strings.TrimSpace(secret))
			wait.For(o.Ctx, 2*time.Second) // what is under way with the old one ends
		}
		if err := o.reconfigure(); err != nil {
			return err
		}
	}
	return o.expect("the old token", http.StatusUnauthorized, old)
}

// reconfigure writes the configuration and restarts, as the document says.
func (o *operation) reconfigure() error {
	if err := o.configure(); err != nil {
		return err
	}
	_, _, err := o.types("Rotating", 1)
	return err
}

func (o *operation) expect(what string, status int, token string) error {
	r, err := http.NewRequestWithContext(o.Ctx, http.MethodGet, "https://"+o.http+"/v1/services", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := o.via.over.RoundTrip(r)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != status {
		o.Violations++
		o.Say("VIOLATION rotated: %s is answered with %s", what, res.Status)
	}
	return nil
}

// rotateUser does the same with a user of NATS: both are good for a while, then only the new one is.
func (o *operation) rotateUser() error {
	for _, users := range [][]string{{"ops"}, {"ops", "ops-2"}, {"ops-2"}} {
		o.users = users
		if err := o.reconfigure(); err != nil {
			return err
		}
		for _, u := range []string{"ops", "ops-2"} {
			nc, err := nats.Connect(o.natsURL(u), nats.NoReconnect())
			if err == nil {
				nc.Close()
			}
			if good := slices.Contains(users, u); good != (err == nil) {
				o.Violations++
				o.Say("VIOLATION rotated: with the users %v, %s got %v", users, u, err)
			}
		}
	}
	o.env = append(o.env, "NATS_URL="+o.natsURL("ops-2"))
	return nil
}

// renewCertificate replaces the files; nothing is restarted.
func (o *operation) renewCertificate() error {
	if err := selfsigned.Write(2, o.path("home", "new.crt"), o.path("home", "new.key")); err != nil {
		return err
	}
	pid := o.unit.Pid()
	if _, _, err := o.types("Rotating", 2); err != nil {
		return err
	}
	o.via.over.CloseIdleConnections()
	return rig.Until(o.Ctx, 10*time.Second, "the renewed certificate is shown by the same process", func() bool { return o.via.serial.Load() == 2 && o.unit.Pid() == pid })
}

// fillStore fills the store by a stream of an outbox, sees commands refused, and makes room as the document says.
func (o *operation) fillStore() error {
	r, err := o.Reader(o.natsURL("ops-2"))
	if err != nil {
		return err
	}
	if _, err := r.JS().CreateStream(o.Ctx, jetstream.StreamConfig{Name: "OUTBOX", Subjects: []string{"outbox.>"}}); err != nil {
		return err
	}
	fullness := func(status int) func() bool {
		c := &http.Client{Timeout: 3 * time.Second, Transport: &o.via.over}
		return func() bool {
			res, err := c.Get("https://" + o.http + "/readyz")
			if err != nil {
				return false
			}
			_ = res.Body.Close()
			return res.StatusCode == status
		}
	}
	full := fullness(http.StatusServiceUnavailable)
	if err := rig.Until(o.Ctx, 30*time.Second, "the store is full", func() bool {
		_, _ = r.JS().Publish(o.Ctx, "outbox.order", make([]byte, 512<<10)) // at the end the disk may take no more
		return full()
	}); err != nil {
		return err
	}
	began := time.Now()
	said, _, err := o.types("When the disk is full", 0)
	if err != nil {
		return err
	}
	if !strings.Contains(said, "OUTBOX") {
		return fmt.Errorf("the report does not name what is large: %s", said)
	}
	if _, _, err := o.types("When the disk is full", 1); err != nil {
		return err
	}
	if err := rig.Until(o.Ctx, 30*time.Second, "there is room", fullness(http.StatusOK)); err != nil {
		return err
	}
	o.Say("a full store had room %s after somebody began to make it", part.Since(began))
	return nil
}

// restore makes a backup, loses the streams, and has them again.
func (o *operation) restore() error {
	if _, _, err := o.types("Backup", 0); err != nil {
		return err
	}
	made, err := filepath.Glob(o.path("backups", "instar-*.backup"))
	if err != nil || len(made) != 1 {
		return fmt.Errorf("these backups were made: %v %w", made, err)
	}
	o.backup = filepath.Base(made[0])
	services := func() string {
		cmd := exec.CommandContext(o.Ctx, o.path("bin", "instar"), "service", "ls", "-o", "name")
		cmd.Env = append(os.Environ(), o.env...)
		said, _ := cmd.Output() // nothing until it serves
		return string(said)
	}
	before := services()
	if before == "" {
		return errors.New("it lists no services")
	}
	if _, _, err := o.types("Backup", 1); err != nil {
		return err
	}
	return rig.Until(o.Ctx, 30*time.Second, "the restored services are there", func() bool { return services() == before })
}
