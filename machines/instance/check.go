package instance

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
)

var (
	headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$")
	aliasForm  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// Validate checks what the types cannot say.
func (c *Check) Validate() *machines.Refusal {
	var f findings
	f.check(c)
	return f.Refusal()
}

func (f *findings) check(c *Check) {
	f.oneOf("type", c.Type, Kinds...)
	f.span("interval", c.Interval, 100*time.Millisecond, longest)
	f.span("timeout", c.Timeout, 10*time.Millisecond, 10*time.Minute)
	f.span("ttl", c.TTL, time.Second, longest)
	f.span("grace", c.Grace, 0, longest)
	f.Between("port", c.Port, 0, 65535)
	f.http(c)
	f.text("grpcService", c.GRPCService, 255)
	f.kind(c)
	f.Between("observers", c.Observers, 0, 9)
	if c.Agree < 0 || c.Agree > c.ObserversOf() {
		f.Add("agree", "must be from 0 to the number of observers, which is %d", c.ObserversOf())
	}
}

func (f *findings) http(c *Check) {
	f.text("path", c.Path, 2048)
	if c.Path != "" && !strings.HasPrefix(c.Path, "/") {
		f.Add("path", "does not begin with /")
	}
	if strings.ContainsAny(c.Path, " #") {
		f.Add("path", "contains a blank or #")
	}
	f.oneOf("method", c.Method, "GET", "HEAD", "POST", "PUT", "OPTIONS")
	f.oneOf("httpVersion", c.HTTPVersion, HTTP1, HTTP2)
	if len(c.Headers) > 64 {
		f.Add("headers", "has more than 64")
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if !headerName.MatchString(name) {
			f.Add("headers", "%q is not the name of a header", name)
		}
		f.text("headers."+name, c.Headers[name], 4096)
		size += len(name) + len(c.Headers[name])
	}
	if size > maxTexts {
		f.Add("headers", "are together larger than %d bytes", maxTexts)
	}
	if len(c.Body) > 16384 {
		f.Add("body", "is longer than 16384 bytes")
	}
	if len(c.Status) > 16 {
		f.Add("status", "has more than 16")
	}
	for i, s := range c.Status {
		f.Between(fmt.Sprintf("status[%d]", i), s, 100, 599)
	}
	f.match(c.Match)
	if c.ServerName != "" && (len(c.ServerName) > 253 || !hostName.MatchString(c.ServerName)) {
		f.Add("serverName", "is not a DNS name or an IPv4 address")
	}
}

func (f *findings) match(expr string) {
	if len(expr) > 1024 {
		f.Add("match", "is longer than 1024 bytes")
		return
	}
	if expr == "" {
		return
	}
	if _, err := regexp.Compile(expr); err != nil {
		f.Add("match", "is not a regular expression: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
}

// kind checks what only one type has. What would be ignored is refused: its author means another type.
func (f *findings) kind(c *Check) {
	kind := c.Kind()
	for _, x := range []struct {
		field, of string
		set       bool
	}{{"ttl", CheckTTL, c.TTL != ""}, {"grace", CheckTTL, c.Grace != ""}, {"alias", CheckAlias, c.Alias != ""}, {"command", CheckScript, len(c.Command) > 0}, {"httpVersion", CheckHTTP, c.HTTPVersion != ""}} {
		if x.set && kind != x.of {
			f.Add(x.field, "is for checks of the type %s, this one is %s", x.of, kind)
		}
	}
	switch kind {
	case CheckAlias:
		if !aliasForm.MatchString(c.Alias) {
			f.Add("alias", "is not <service>/<instanceId>")
		}
	case CheckScript:
		if len(c.Command) == 0 || c.Command[0] == "" {
			f.Add("command", "is required for a script")
		}
		if len(c.Command) > 32 {
			f.Add("command", "has more than 32 arguments")
		}
		size := 0
		for i, arg := range c.Command {
			size += len(arg)
			if len(arg) > 4096 || strings.ContainsRune(arg, 0) {
				f.Add(fmt.Sprintf("command[%d]", i), "is longer than 4096 bytes or contains a NUL byte")
			}
		}
		if size > maxTexts {
			f.Add("command", "is larger than %d bytes", maxTexts)
		}
	}
}
