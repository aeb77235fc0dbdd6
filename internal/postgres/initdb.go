package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// initialise makes the cluster, once, and knows its password. A cluster is made beside its place and moved there, so
// that one which was not finished is never taken for one.
func (c *Cluster) initialise(ctx context.Context) error {
	secret := filepath.Join(c.options.Dir, "password")
	if _, err := os.Stat(filepath.Join(c.data(), "PG_VERSION")); err == nil {
		word, err := os.ReadFile(secret)
		c.password = strings.TrimSpace(string(word))
		return err
	}
	unfinished := filepath.Join(c.options.Dir, "unfinished")
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	c.password = rand.Text()
	if err := os.WriteFile(secret, []byte(c.password+"\n"), 0o600); err != nil {
		return err
	}
	if err := c.owner.own(secret); err != nil {
		return err
	}
	args := []string{
		"--pgdata=" + unfinished, "--username=" + superuser, "--pwfile=" + secret, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C",
	}
	if c.options.Config["fsync"] == "off" {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "initdb"), args...) // #nosec G204 -- what was found is run
	cmd.Dir = c.options.Dir
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.owner.credential(), Setpgid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	return os.Rename(unfinished, c.data())
}

// environment is without what would steer the server or its tools from outside.
func environment() []string {
	env := []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	if zone, ok := os.LookupEnv("TZ"); ok {
		env = append(env, "TZ="+zone)
	}
	return env
}
