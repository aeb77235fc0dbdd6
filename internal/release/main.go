package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
)

// release is what is to be made.
type release struct {
	root, pkg string // directory of the module, and the package of the program in it
	version   string
	targets   []string // os/arch
	out       string
	key       string // private key of OpenSSH, or the public one of a key that an agent holds; empty signs nothing
}

// namespace is what signatures are for, so that one of something else is none of a release (ssh-keygen -n).
const namespace = "instar"

func main() {
	r := release{}
	flag.StringVar(&r.root, "root", ".", "directory of the module")
	flag.StringVar(&r.pkg, "package", "./cmd/instar", "package of the program")
	flag.StringVar(&r.version, "version", "", "version, such as v1.2.3")
	flag.StringVar(&r.out, "out", "dist", "directory that is written; what is in it must be of this program")
	flag.StringVar(&r.key, "key", "", "key of OpenSSH that signs the checksums; empty signs nothing")
	targets := flag.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "systems")
	flag.Parse()
	r.targets = strings.Split(*targets, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := r.make(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		stop()
		os.Exit(1)
	}
}

var versionForm = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+-]*$`)

func (r *release) make(ctx context.Context) error {
	if !versionForm.MatchString(r.version) {
		return fmt.Errorf("the version %q is not like v1.2.3", r.version)
	}
	if left, _ := os.ReadDir(r.out); len(left) > 0 { // one that is not there has nothing
		return fmt.Errorf("there is something in %s: remove it first", r.out)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, target := range r.targets {
		if err := r.build(ctx, target); err != nil {
			return fmt.Errorf("%s: %w", target, err)
		}
	}
	if err := r.sum(); err != nil || r.key == "" {
		return err
	}
	return r.sign(ctx)
}

// build makes the program for one system, and its bill.
func (r *release) build(ctx context.Context, target string) error {
	system, arch, ok := strings.Cut(target, "/")
	if !ok {
		return errors.New("a system is os/arch")
	}
	out, err := filepath.Abs(filepath.Join(r.out, fmt.Sprintf("instar_%s_%s_%s", r.version, system, arch)))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=auto", "-tags", "grpcnotrace", "-ldflags", "-s -w -X main.version="+r.version, "-o", out, r.pkg)
	cmd.Dir, cmd.Env = r.root, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOOS="+system, "GOARCH="+arch)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return err
	}
	bill, err := billOf(out, r.version)
	if err != nil {
		return err
	}
	return os.WriteFile(out+".cdx.json", bill, 0o644)
}

const sums = "SHA256SUMS"

// sum writes the checksums of all that is there, as sha256sum reads them.
func (r *release) sum() error {
	files, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(r.out, f.Name()))
		if err != nil {
			return err
		}
		hash := sha256.Sum256(raw)
		fmt.Fprintf(&text, "%s  %s\n", hex.EncodeToString(hash[:]), f.Name())
	}
	return os.WriteFile(filepath.Join(r.out, sums), text.Bytes(), 0o644)
}

// sign writes SHA256SUMS.sig, which ssh-keygen -Y verify checks.
func (r *release) sign(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", r.key, filepath.Join(r.out, sums))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot sign: %w", err)
	}
	return nil
}
