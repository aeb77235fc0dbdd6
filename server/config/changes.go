package config

import (
	"reflect"

	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"
)

// Changes are the settings that differ from the defaults of the mode, without secrets, as attributes of a log line. Lists that
// have no flag are told by their number.
func (c Config) Changes() []any {
	have, usual := koanf.New(delim), koanf.New(delim)
	if have.Load(structs.Provider(c.Redacted(), "koanf"), nil) != nil || usual.Load(structs.Provider(Defaults(c.Mode), "koanf"), nil) != nil {
		return []any{"error", "cannot be printed"} // which String says better
	}
	var attrs []any
	for _, o := range options {
		if v := have.Get(o.path()); !reflect.DeepEqual(v, usual.Get(o.path())) {
			attrs = append(attrs, o.key, v)
		}
	}
	for name, n := range map[string]int{"auth.tokens": len(c.Auth.Tokens), "nats.users": len(c.NATS.Users), "outbox.sources": len(c.Outbox.Sources), "tenants.servers": len(c.Tenants.Servers), "platform.versions": len(c.Platform.Versions)} {
		if n > 0 {
			attrs = append(attrs, name, n)
		}
	}
	return attrs
}
