// Package environ says which variables of the environment a request may set for a process.
package environ

import (
	"regexp"
	"slices"
	"strings"

	"github.com/bcc94042/instar/providers"
)

// What a request must not set: the loader's and the interpreters' hooks, by which a value becomes code, and what the
// gateway itself says.
var (
	reservedPrefixes = []string{"LD_", "LISTEN_", "INSTAR_", "DYLD_", "GLIBC_", "MALLOC_", "PYTHON", "PERL5", "RUBY", "GIT_"}
	reservedNames    = []string{
		"PATH", "PORT", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "GCONV_PATH", "GODEBUG", "NODE_OPTIONS",
		"JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "JDK_JAVA_OPTIONS",
	}
	envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

const envBytes = 64 << 10

// Check refuses what a request must not set, and what is too much.
func Check(env map[string]string) error {
	total := 0
	for name, value := range env {
		total += len(name) + len(value)
		reserved := slices.Contains(reservedNames, name) ||
			slices.ContainsFunc(reservedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
		switch {
		case !envName.MatchString(name):
			return providers.Errorf(providers.Invalid, "env: %q is no name of a variable", name)
		case reserved:
			return providers.Errorf(providers.Invalid, "env: %s is not for services to set", name)
		case strings.ContainsRune(value, 0):
			return providers.Errorf(providers.Invalid, "env: the value of %s contains a NUL", name)
		}
	}
	if total > envBytes {
		return providers.Errorf(providers.Invalid, "env: %d bytes are more than %d", total, envBytes)
	}
	return nil
}
