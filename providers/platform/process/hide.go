package process

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// hidden stands for what nobody is to read.
const hidden = "***"

// password is that of a URL, behind what it follows.
var password = regexp.MustCompile(`(://[^\s/:@]*:)[^\s/@]+@`)

// hide is a message of a release, mostly the last line that its program wrote, without its secrets and without passwords of URLs. Where the secrets cannot be read, it is
// only said that there is a message.
func (a *Apps) hide(namespace, name, message string) string {
	if message == "" {
		return ""
	}
	secrets, err := a.secrets(namespace, name)
	if err != nil {
		return fmt.Sprintf("its message is in its log, and not told: %v", err)
	}
	for _, s := range secrets {
		message = strings.ReplaceAll(message, s, hidden)
	}
	return password.ReplaceAllString(message, "${1}"+hidden+"@")
}

// secrets are what the files of a release have, and the passwords within, the longest first.
func (a *Apps) secrets(namespace, name string) (list []string, err error) {
	dir := filepath.Join(a.gateway.Home(namespace, name), secretDir)
	files, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, nil
	}
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		value := strings.TrimSpace(string(raw))
		list = append(list, value)
		if u, err := url.Parse(value); err == nil {
			if word, ok := u.User.Password(); ok {
				list = append(list, word, url.QueryEscape(word), url.PathEscape(word))
			}
		}
	}
	list = slices.DeleteFunc(list, func(s string) bool { return s == "" })
	slices.SortFunc(list, func(x, y string) int { return cmp.Compare(len(y), len(x)) })
	return list, err
}
