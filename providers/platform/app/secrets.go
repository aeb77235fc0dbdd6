package app

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/bcc94042/instar/providers"
)

// secretDir is where the secrets of a release are, in its directory.
const secretDir = ".secrets"

// secretName is that of a variable.
var secretName = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,62}$`)

// Variables are those that a release gets whose directory is home, and that of its tenant is dir: its own, and where its secrets are.
func Variables(r *Release, home, dir string) (map[string]string, error) {
	env := maps.Clone(r.Env)
	if env == nil {
		env = map[string]string{}
	}
	env["TENANT_DIR"] = dir
	for name := range r.Secrets {
		if !secretName.MatchString(name) {
			return nil, providers.Errorf(providers.Invalid, "%q is no name of a secret", name)
		}
		env[name+"_FILE"] = secretPath(home, name)
	}
	return env, nil
}

func secretPath(home, name string) string {
	return filepath.Join(home, secretDir, strings.ToLower(name))
}

// KeepSecrets makes the directory of a release, and writes its secrets into it, for its owner only: user, or this server's when that is 0. A release that runs may have put links there, of which none leads out.
func KeepSecrets(r *Release, home string, user int) error {
	err := os.MkdirAll(home, 0o700)
	if err == nil && user != 0 {
		err = os.Lchown(home, user, user)
	}
	var in *os.Root
	if err == nil {
		in, err = os.OpenRoot(home)
	}
	if err != nil {
		return providers.Errorf(providers.Internal, "cannot make the directory of %s: %v", r.Name, err)
	}
	defer func() { _ = in.Close() }() // nothing is written by it
	for name, value := range r.Secrets {
		if err := keep(in, strings.ToLower(name), value, user); err != nil {
			return providers.Errorf(providers.Internal, "cannot write the secret %s of %s: %v", name, r.Name, err)
		}
	}
	return nil
}

// keep writes a file whole, or leaves the one before.
func keep(in *os.Root, name, value string, user int) error {
	part := filepath.Join(secretDir, ".part-"+name)
	if err := errors.Join(in.MkdirAll(secretDir, 0o700), in.RemoveAll(part)); err != nil {
		return err
	}
	f, err := in.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if err == nil && user != 0 {
		err = errors.Join(f.Chown(user, user), give(in, user))
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, in.Remove(part))
	}
	return in.Rename(part, filepath.Join(secretDir, name))
}

// give gives a user the directory of the secrets by a descriptor, which is of a directory within: what a release puts in its place meanwhile is not given.
func give(in *os.Root, user int) error {
	dir, err := in.OpenFile(secretDir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	return errors.Join(dir.Chown(user, user), dir.Close())
}

// hidden stands for what nobody is to read.
const hidden = "***"

// password is that of a URL, behind what it follows.
var password = regexp.MustCompile(`(://[^\s/:@]*:)[^\s/@]+@`)

// Hide is a message of a release, mostly the last line that its program wrote, without the secrets in its directory, without more words, and without passwords of URLs. Where the
// secrets cannot be read, it is only said that there is a message.
func Hide(home, message string, more []string) string {
	if message == "" {
		return ""
	}
	words, err := Secrets(home)
	if err != nil {
		return fmt.Sprintf("its message is in its log, and not told: %v", err)
	}
	return Redact(message, slices.Concat(words, more))
}

// Redact is a text without words and without passwords of URLs.
func Redact(text string, words []string) string {
	words = slices.SortedFunc(slices.Values(words), func(x, y string) int { return cmp.Compare(len(y), len(x)) }) // one may be a part of another
	for _, s := range words {
		text = strings.ReplaceAll(text, s, hidden)
	}
	return password.ReplaceAllString(text, "${1}"+hidden+"@")
}

// short is how much of the beginning of a word tells nothing.
const short = 3

// open is a URL that ends within a password.
var open = regexp.MustCompile(`://[^\s/:@]*:[^\s/@]*$`)

// EndsWithin reports whether a text that was cut off ends with the beginning of a word, or of the password of a URL, where [Redact] sees none.
func EndsWithin(text string, words []string) bool {
	for _, w := range words {
		for n := min(len(w)-1, len(text)); n > short; n-- {
			if strings.HasSuffix(text, w[:n]) {
				return true
			}
		}
	}
	return open.MatchString(text)
}

// What is read of the secrets in the directory of a release at most, which can put anything there.
const mostFiles, mostBytes = 64, 256 << 10

// Secrets are what is not to be read of a release whose directory is home: what its files have, and the passwords within. Where there is no such directory, there are none.
func Secrets(home string) (list []string, err error) {
	in, err := os.OpenRoot(home)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // nothing is written by it
	dir, err := in.OpenFile(secretDir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(mostFiles + 1)
	if err = errors.Join(err, dir.Close()); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > mostFiles {
		return nil, fmt.Errorf("%s has more than %d files", secretDir, mostFiles)
	}
	left := mostBytes
	for _, name := range names {
		raw, err := regular(in, filepath.Join(secretDir, name), left)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		left -= len(raw)
		list = append(list, Words(string(raw))...)
	}
	return list, nil
}

// regular reads a file of at most so many bytes. It does not wait, as for who writes into a pipe, and no link leads it out.
func regular(in *os.Root, name string, most int) (raw []byte, err error) {
	f, err := in.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	switch info, err := f.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	if raw, err = io.ReadAll(io.LimitReader(f, int64(most)+1)); len(raw) > most {
		return nil, fmt.Errorf("the files in %s have more than %d bytes", secretDir, mostBytes)
	}
	return raw, err
}

// shortest is the length of a line or value of a file from which on it is hidden: what is shorter, as the name of a region, is in many a message and tells nothing.
const shortest = 8

// Configured are the words of the variables that the configuration has for all releases, which may be passwords, as they are and as they are told. Also of other versions: a tenant's data may have one of before.
func Configured(env map[string]string, versions map[string]Program) (list []string) {
	list = values(env)
	for _, v := range versions {
		list = append(list, values(v.Env)...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// values are the [Words] of what variables have, from the length on that a word has to have: also of what is left of one without control characters, which could be a letter.
func values(env map[string]string) (list []string) {
	for _, value := range env {
		list = append(list, Words(value, Printable(value))...)
	}
	return slices.DeleteFunc(list, func(word string) bool { return len(word) < shortest }) // a password of a URL may be as short as "app"
}

// Printable is a text without what steers a terminal.
func Printable(text string) string { return strings.Map(printed, strings.ToValidUTF8(text, "?")) }

func printed(r rune) rune {
	if r < ' ' && r != '\t' && r != '\n' || r >= 0x7f && r < 0xa0 {
		return -1
	}
	return r
}

// Words are what is not to be read of secrets: themselves, the password that a URL has, and of a file, such as the credentials of S3, each line and each value behind a =.
func Words(secrets ...string) (list []string) {
	for _, secret := range secrets {
		secret = strings.TrimSpace(secret)
		list = append(list, secret)
		for line := range strings.Lines(secret) {
			_, value, _ := strings.Cut(line, "=")
			for _, word := range []string{strings.TrimSpace(line), strings.Trim(strings.TrimSpace(value), `"'`)} {
				if len(word) >= shortest {
					list = append(list, word)
				}
			}
		}
		if u, err := url.Parse(secret); err == nil {
			if word, ok := u.User.Password(); ok {
				list = append(list, word, url.QueryEscape(word), url.PathEscape(word))
			}
		}
	}
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}
