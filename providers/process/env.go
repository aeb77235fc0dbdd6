//go:build linux

package process

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/process/child"
	"github.com/bcc94042/instar/providers/process/environ"
	"github.com/bcc94042/instar/providers/process/probe"
)

// checkSpec refuses what this gateway can never run.
func (c *Config) checkSpec(spec *service.Spec) error {
	if _, ok := c.Templates[spec.Image]; !ok {
		return providers.Errorf(providers.Invalid, "image: there is no template %q; there are %s", spec.Image, strings.Join(c.images(), ", "))
	}
	if spec.Scale.Max != 0 && spec.Scale.Max < spec.Scale.Min {
		return providers.Errorf(providers.Invalid, "scale: max %d is less than min %d", spec.Scale.Max, spec.Scale.Min)
	}
	if c.Templates[spec.Image].Socket == SocketPublic && spec.Scale.Min > 1 {
		return providers.Errorf(providers.Invalid, "scale: a program of the template %s has the public socket for itself", spec.Image)
	}
	if !probe.Known(spec.Probe) {
		return providers.Errorf(providers.Invalid, "probe: %q is not one of %s", spec.Probe.Type, strings.Join(service.ProbeTypes, ", "))
	}
	if p := spec.Probe.Path; p != "" && !strings.HasPrefix(p, "/") {
		return providers.Errorf(providers.Invalid, "probe: the path %q does not begin with /", p)
	}
	return environ.Check(spec.Env)
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
	if t.Home {
		env["HOME"], env["TMPDIR"] = u.home(), u.temporary() // which others do not read, and which is there where /tmp is closed
	}
	if t.Socket == SocketPort { // the forwarder, or the proxy, finds it there, and nobody else is to pass them by
		env["HOST"] = "127.0.0.1"
	}
	maps.Copy(env, t.Env)
	maps.Copy(env, r.Spec.Env)
	env["PORT"] = strconv.Itoa(port)
	env["INSTAR_SERVICE"], env["INSTAR_NAMESPACE"] = u.state.Name, u.state.Namespace
	env["INSTAR_REVISION"], env["INSTAR_SITES"] = r.Name, filepath.Join(u.gateway.config.Sites, u.state.Namespace)
	env[child.OwnerVar] = u.gateway.owner
	list := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		list = append(list, name+"="+env[name])
	}
	return list
}
