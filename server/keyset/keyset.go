// Package keyset reads the files with the keysets that secrets are sealed with, and makes them.
package keyset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bcc94042/instar/providers/database/secret"
)

// Open reads the keyset of a setting, such as tenants.keys; where it may, it makes one that is not there.
func Open(setting, path string, may bool) (*secret.Keys, error) {
	raw, err := os.ReadFile(path)
	if may && errors.Is(err, fs.ErrNotExist) {
		if err := write(path); err != nil {
			return nil, fmt.Errorf("%s: %w", setting, err)
		}
		raw, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot read the keyset: %w", setting, err)
	}
	keys, err := secret.Open(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %s: %w; `instar tenant-keyset FILE` makes one", setting, path, err)
	}
	return keys, nil
}

// write makes a keyset in a file that is not there yet.
func write(path string) error {
	set, err := secret.NewKeyset()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("cannot make the keyset: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("cannot make the keyset: %w", err)
	}
	_, err = f.Write(append(set, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("cannot make the keyset: %w", err)
	}
	return nil
}

// Program makes a keyset: its argument is a file that is not there yet.
func Program(args []string) int {
	if len(args) != 1 || strings.HasPrefix(args[0], "-") {
		fmt.Fprintln(os.Stderr, "usage: instar tenant-keyset FILE\nIt writes the keyset that tenants' credentials, and private keys of certificates, are sealed with into a file that is not there yet.")
		return 2
	}
	if err := write(args[0]); err != nil {
		fmt.Fprintln(os.Stderr, "instar tenant-keyset:", err)
		return 1
	}
	fmt.Printf("The keyset is in %s. Keep a copy: what was sealed with it opens with nothing else.\n", args[0])
	return 0
}
