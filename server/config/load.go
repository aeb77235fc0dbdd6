package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	yamlparser "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// delim separates the parts of a key within koanf. It is no dot, because the name of a template may hold one.
const delim = "::"

// AllNamespaces is the namespace of a [Token] that is good for every one.
const AllNamespaces = "*"

// Load reads the configuration of a mode: flags over environment over file over defaults. flags are those of [Flags], or nil;
// environ is as [os.Environ] has it. What comes back has passed [Config.Validate].
func Load(mode string, flags *pflag.FlagSet, environ []string) (Config, error) {
	k := koanf.New(delim)
	if err := k.Load(structs.Provider(Defaults(mode), "koanf"), nil); err != nil {
		return Config{}, fmt.Errorf("cannot load the defaults: %w", err)
	}
	if path := configPath(flags, environ); path != "" {
		if err := checkKeys(path); err != nil {
			return Config{}, err
		}
		if err := k.Load(file.Provider(path), yamlparser.Parser()); err != nil {
			return Config{}, fmt.Errorf("cannot read the configuration file: %w", err)
		}
	}
	if err := k.Load(env.Provider(delim, env.Opt{Prefix: "INSTAR_", TransformFunc: fromEnv, EnvironFunc: func() []string { return environ }}), nil); err != nil {
		return Config{}, fmt.Errorf("cannot read the environment: %w", err)
	}
	if flags != nil {
		if err := k.Load(posflag.ProviderWithFlag(flags, delim, k, func(f *pflag.Flag) (string, any) { return fromFlag(flags, f) }), nil); err != nil {
			return Config{}, fmt.Errorf("cannot read the flags: %w", err)
		}
	}
	c := Config{Mode: mode}
	if err := k.Unmarshal("", &c); err != nil {
		return Config{}, fmt.Errorf("cannot read the configuration: %w", err)
	}
	for i := range c.Auth.Tokens {
		c.Auth.Tokens[i].Namespace = cmp.Or(c.Auth.Tokens[i].Namespace, AllNamespaces)
	}
	return c, c.Validate()
}

func configPath(flags *pflag.FlagSet, environ []string) string {
	if flags != nil {
		if path, err := flags.GetString("config"); err == nil && path != "" {
			return path
		}
	}
	for _, kv := range environ {
		if path, ok := strings.CutPrefix(kv, "INSTAR_CONFIG="); ok {
			return path
		}
	}
	return ""
}

// fromEnv ignores variables that are no option: the client has its own, and a Kubernetes service named instar brings
// more of them into every pod.
func fromEnv(name, value string) (string, any) {
	for _, o := range options {
		if o.env() == name {
			return o.path(), value
		}
	}
	return "", nil
}

// ReadsEnv reports whether an option is read from the environment variable of that name.
func ReadsEnv(name string) bool {
	key, _ := fromEnv(name, "")
	return key != ""
}

func fromFlag(fs *pflag.FlagSet, f *pflag.Flag) (string, any) {
	for _, o := range options {
		if o.flag == f.Name && f.Changed {
			return o.path(), posflag.FlagVal(fs, f)
		}
	}
	return "", nil
}

// checkKeys refuses keys that no field has, durations without a unit and texts that YAML takes for something else,
// and says where they are.
func checkKeys(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cannot read the configuration file: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("configuration file %s: %w", path, err)
	}
	if len(doc.Content) == 0 {
		return nil
	}
	var errs []error
	walkKeys(doc.Content[0], reflect.TypeFor[Config](), "", func(n *yaml.Node, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s:%d: %s", path, n.Line, fmt.Sprintf(format, args...)))
	})
	return errors.Join(errs...)
}

func walkKeys(n *yaml.Node, t reflect.Type, at string, report func(*yaml.Node, string, ...any)) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	switch {
	case t == reflect.TypeFor[time.Duration]():
		if _, err := time.ParseDuration(n.Value); err != nil {
			report(n, "%s: %q is no duration; write a number with a unit, such as 60s", at, n.Value)
		}
	case t.Kind() == reflect.Slice && n.Kind == yaml.SequenceNode:
		for i, item := range n.Content {
			walkKeys(item, t.Elem(), fmt.Sprintf("%s[%d]", at, i), report)
		}
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map, t.Kind() == reflect.Slice:
		if n.Kind != yaml.MappingNode || t.Kind() == reflect.Slice {
			report(n, "%s: expected a %s", at, map[bool]string{true: "list", false: "mapping"}[t.Kind() == reflect.Slice])
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			walkPair(n.Content[i], n.Content[i+1], t, at, report)
		}
	case n.Kind != yaml.ScalarNode:
		report(n, "%s: expected a single value", at)
	case t.Kind() == reflect.String && n.Tag != "!!str": // 1.10 would become 1.1, and true 1
		report(n, "%s: that is no text to YAML; put it in quotes", at) // it may be a secret
	}
}

func walkPair(key, value *yaml.Node, t reflect.Type, at string, report func(*yaml.Node, string, ...any)) {
	path := strings.TrimPrefix(at+"."+key.Value, ".")
	if t.Kind() == reflect.Map {
		walkKeys(value, t.Elem(), path, report)
		return
	}
	var known []string
	for i := range t.NumField() {
		name := t.Field(i).Tag.Get("koanf")
		if name == "-" {
			continue
		}
		if name == key.Value {
			walkKeys(value, t.Field(i).Type, path, report)
			return
		}
		known = append(known, name)
	}
	if instead, ok := gone[index.ReplaceAllString(path, "[]")]; ok {
		report(key, "%s: there is no such setting any more: %s", path, instead)
		return
	}
	slices.Sort(known)
	report(key, "unknown key %q; known here: %s", path, strings.Join(known, ", "))
}

// noSlot is why a key for mode wal is gone.
const noSlot = "no mode needs a replication slot. Leave the key away"

// gone are the keys that there were once, and what to do instead.
var gone = map[string]string{
	"outbox.sources[].publication": noSlot,
	"outbox.sources[].slot":        noSlot,
}

var index = regexp.MustCompile(`\[[0-9]+\]`)
