//go:build linux

package process

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/bcc94042/instar/machines/service"
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

// checkEnv refuses what a request must not set.
func checkEnv(env map[string]string) error {
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

// checkSpec refuses what this gateway can never run.
func (c *Config) checkSpec(spec *service.Spec) error {
	if _, ok := c.Templates[spec.Image]; !ok {
		return providers.Errorf(providers.Invalid, "image: there is no template %q; there are %s", spec.Image, strings.Join(c.images(), ", "))
	}
	if spec.Scale.Max != 0 && spec.Scale.Max < spec.Scale.Min {
		return providers.Errorf(providers.Invalid, "scale: max %d is less than min %d", spec.Scale.Max, spec.Scale.Min)
	}
	if probes[spec.Probe.Kind()] == nil {
		return providers.Errorf(providers.Invalid, "probe: %q is not one of %s", spec.Probe.Type, strings.Join(service.ProbeTypes, ", "))
	}
	if p := spec.Probe.Path; p != "" && !strings.HasPrefix(p, "/") {
		return providers.Errorf(providers.Invalid, "probe: the path %q does not begin with /", p)
	}
	return checkEnv(spec.Env)
}

// passed are the variables that processes get from the control plane: none that may hold a secret.
var passed = []string{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}

// environment of a process: the weakest first.
func (u *unit) environment(t Template, r *revision, port int) []string {
	env := map[string]string{}
	for _, name := range passed {
		if v, ok := os.LookupEnv(name); ok {
			env[name] = v
		}
	}
	maps.Copy(env, t.Env)
	maps.Copy(env, r.Spec.Env)
	env["PORT"] = strconv.Itoa(port)
	env["INSTAR_SERVICE"], env["INSTAR_NAMESPACE"] = u.state.Name, u.state.Namespace
	env["INSTAR_REVISION"], env["INSTAR_SITES"] = r.Name, filepath.Join(u.gateway.config.Sites, u.state.Namespace)
	env[ownerVar] = u.gateway.owner
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
