package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/embedded"
)

func flagSet(t *testing.T, mode string, args ...string) *pflag.FlagSet {
	t.Helper()
	fs := pflag.NewFlagSet(mode, pflag.ContinueOnError)
	Flags(fs, mode)
	require.NoError(t, fs.Parse(args))
	return fs
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLoadPrecedence(t *testing.T) {
	t.Parallel()
	path := writeFile(t, "instar.yaml", "data: /file\nhttp: {listen: '127.0.0.1:1'}\nobserve: {every: 5s}\nnats: {listen: ''}\n")
	env := []string{"INSTAR_HTTP=127.0.0.1:2", "INSTAR_OBSERVE_EVERY=6s", "INSTAR_PORT=tcp://10.0.0.1:80", "INSTAR_INSECURE=true", "INSTAR_NATS_REPLICAS=1"}
	want := Defaults(Serve)
	want.Data, want.HTTP.Listen, want.Observe.Every, want.NATS.Listen, want.Insecure = "/file", "127.0.0.1:2", 7*time.Second, "", true

	want.NATS.Users, want.Auth.Tokens, want.Auth.OIDC.Roles, want.Gateways.Process.Templates = []embedded.User{}, []Token{}, []OIDCRole{}, map[string]Template{}
	want.Outbox.Sources = []OutboxSource{}
	want.Tasks.Programs, want.Tasks.Credentials = map[string]Program{}, []Credential{}
	want.Tenants.Servers, want.Tenants.Tables = []TenantServer{}, map[string]TenantTable{}
	want.Platform.Versions, want.Platform.Limits = map[string]Release{}, map[string]PlatformLimits{}

	got, err := Load(Serve, flagSet(t, Serve, "--config", path, "--observe-every", "7s"), env)
	require.NoError(t, err)
	require.Equal(t, want, got)

	got, err = Load(Serve, flagSet(t, Serve, "--observe-every", "7s"), append(env, "INSTAR_CONFIG="+path))
	require.NoError(t, err)
	require.Equal(t, want, got, "the file's name may come from the environment")
}

func TestDurabilityDependsOnTheMode(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{Dev: "interval", Serve: "fsync"} {
		c, err := Load(mode, flagSet(t, mode), nil)
		require.NoError(t, err)
		require.Equal(t, want, c.Durability, mode)
	}
}

func TestLoadLists(t *testing.T) {
	t.Parallel()
	hash := "sha256:" + strings.Repeat("ab", 32)
	path := writeFile(t, "instar.yaml", `
auth:
  tokens:
    - {name: ci, hash: `+hash+`, role: operate, namespace: default}
nats:
  users:
    - {name: reader, password: s3cret, publish: [instar.api.get.>], subscribe: [instar.evt.>]}
gateways:
  process:
    templates:
      web.v1: {command: [python3, app.py], env: {A.B: "1"}, dir: /srv, socket: port}
`)
	c, err := Load(Serve, flagSet(t, Serve, "--config", path), nil)
	require.NoError(t, err)
	require.Equal(t, []Token{{Name: "ci", Hash: hash, Role: "operate", Namespace: "default"}}, c.Auth.Tokens)
	require.Equal(t, []embedded.User{{Name: "reader", Password: "s3cret", Publish: []string{"instar.api.get.>"}, Subscribe: []string{"instar.evt.>"}}}, c.NATS.Users)
	require.Equal(t, map[string]Template{"web.v1": {Command: []string{"python3", "app.py"}, Env: map[string]string{"A.B": "1"}, Dir: "/srv", Socket: "port"}}, c.Gateways.Process.Templates)
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	cert, key := writeFile(t, "tls.crt", "x"), writeFile(t, "tls.key", "x")
	for name, tc := range map[string]struct {
		file string
		args []string
		env  []string
		want string
	}{
		"AnUnknownKey":             {file: "data: /x\nhtpp: {}", want: `instar.yaml:2: unknown key "htpp"; known here: auth, cluster, data`},
		"AnUnknownNestedKey":       {file: "nats:\n  usrs: []", want: `instar.yaml:2: unknown key "nats.usrs"; known here: context, creds, listen`},
		"AnUnknownKeyInAList":      {file: "auth:\n  tokens:\n    - nme: x", want: `instar.yaml:3: unknown key "auth.tokens[0].nme"`},
		"AnUnknownKeyOfATemplate":  {file: "gateways: {process: {templates: {a: {cmd: [x]}}}}", want: `unknown key "gateways.process.templates.a.cmd"`},
		"ABoundBesideADefault":     {args: []string{"--store-max", "16MiB", "--store-events", "14MiB"}, want: "14 MiB and 2.0 MiB are more than nine tenths of store.max"},
		"ADefaultBesideABound":     {args: []string{"--store-max", "16MiB", "--store-dead-letters", "7MiB"}, want: "8.0 MiB and 7.0 MiB are more than nine tenths of store.max"},
		"ADurationWithoutUnit":     {file: "observe: {every: 60}", want: `observe.every: "60" is no duration`},
		"AScalarForAMapping":       {file: "http: ':80'", want: "http: expected a mapping"},
		"AScalarForAList":          {file: "nats: {users: a}", want: "nats.users: expected a list"},
		"ANumberForAText":          {file: "gateways: {process: {templates: {a: {env: {V: 1.10}}}}}", want: "templates.a.env.V: that is no text to YAML; put it in quotes"},
		"BrokenYAML":               {file: "a: [", want: "instar.yaml: yaml:"},
		"AMissingFile":             {args: []string{"--config", "/nowhere.yaml"}, want: "cannot read the configuration file"},
		"AnUnknownDurability":      {args: []string{"--durability", "always"}, want: `durability: "always" is none of fsync, interval, os`},
		"AnUnknownGateway":         {args: []string{"--gateway", "nomad"}, want: `gateway: "nomad" is none of process, knative, simulated`},
		"AnAddressWithoutPort":     {args: []string{"--http", "localhost"}, want: `http.listen: "localhost" is not host:port`},
		"ANumberThatIsNone":        {env: []string{"INSTAR_EFFECT_CONCURRENCY=many"}, want: "concurrency"},
		"TooMuchConcurrency":       {args: []string{"--effect-concurrency", "0"}, want: "effects.concurrency: 0 is not between 1 and 1024"},
		"AKeyWithoutCertificate":   {args: []string{"--http-key", key}, want: "http.tls: cert and key belong together"},
		"AFileThatIsNotThere":      {args: []string{"--http-cert", "/nowhere", "--http-key", key}, want: "http.tls.cert: open /nowhere"},
		"ReplicasWithoutACluster":  {args: []string{"--nats-replicas", "3"}, want: "3 needs nats.url"},
		"TwoReplicas":              {args: []string{"--nats-replicas", "2", "--nats-url", "nats://x"}, want: "neither 1 nor 3"},
		"UsersOfAnotherServer":     {file: "nats: {url: 'nats://x', users: [{name: a, password: b, role: admin}]}", want: "nats.users: the server at nats.url has its own users"},
		"AUserWithoutPassword":     {file: "nats: {users: [{name: a}]}", want: "nats.users[0]: needs a name of letters"},
		"TwoUsersOfOneName":        {file: "nats: {users: [{name: a, password: b, role: read}, {name: a, password: c, role: read}]}", want: "nats.users[1]: needs a name of its own"},
		"AUserWithoutRole":         {file: "nats: {users: [{name: a, password: b}]}", want: "nats.users[0]: needs a role, or publish and subscribe"},
		"ASubscriberOnly":          {file: "nats: {users: [{name: a, password: b, subscribe: [instar.evt.>]}]}", want: "nats.users[0]: has subscribe without publish, and an empty list is everything to NATS"},
		"APublisherOnly":           {file: "nats: {users: [{name: a, password: b, publish: [instar.api.get.>]}]}", want: "nats.users[0]: has publish without subscribe"},
		"AConsumerMaker":           {file: "nats: {users: [{name: a, password: b, publish: ['$JS.API.CONSUMER.CREATE.EVENTS.>'], subscribe: [instar.evt.>]}]}", want: "gives the rights of the control plane"},
		"ATokenInClear":            {file: "auth: {tokens: [{name: a, hash: s3cret, role: read}]}", want: "auth.tokens[0].hash: needs sha256: and 64 hex digits"},
		"AnUnknownRole":            {file: "auth: {tokens: [{name: a, role: root}]}", want: `auth.tokens[0].role: "root"`},
		"ATemplateWithoutCommand":  {file: "gateways: {process: {templates: {a: {dir: /}}}}", want: "gateways.process.templates.a.command: needs a program"},
		"AKubeconfigNotThere":      {args: []string{"--kubeconfig", "/nowhere"}, want: "gateways.knative.kubeconfig: open /nowhere"},
		"ANamespaceThatIsNone":     {args: []string{"--kube-namespace", "Apps"}, want: `gateways.knative.namespace: "Apps" is no DNS label`},
		"NoOwner":                  {args: []string{"--kube-owner", ""}, want: `gateways.knative.owner: "" is no DNS label`},
		"AnImageThatIsAny":         {file: "gateways: {knative: {images: ['']}}", want: "gateways.knative.images: an empty text would take any image"},
		"HTTPForEverybody":         {args: []string{"--http", ":8080"}, want: "http.listen: :8080 can be reached from other machines"},
		"HTTPWithTLSButNoTokens":   {args: []string{"--http", "0.0.0.0:8080", "--http-cert", cert, "--http-key", key}, want: "set auth.tokens and http.tls"},
		"NATSForEverybody":         {args: []string{"--nats", "[::]:4222"}, want: "nats.listen: [::]:4222 can be reached from other machines: set nats.users and nats.tls"},
		"ASecondMistakeIsToldToo":  {args: []string{"--gateway", "x", "--log-level", "loud"}, want: `log.level: "loud"`},
		"AClusterWithoutRoutes":    {args: []string{"--cluster", "blue", "--cluster-listen", "127.0.0.1:6222"}, want: "cluster.routes: needs nats://host:port of the other members"},
		"RoutesWithoutACluster":    {args: []string{"--cluster-routes", "nats://a:1"}, want: "give it a name with --cluster"},
		"AClusterAndAnotherServer": {args: []string{"--cluster", "blue", "--cluster-listen", "127.0.0.1:6222", "--cluster-routes", "nats://a:1", "--nats-url", "nats://b:1"}, want: "cluster.name is for the embedded server"},
		"AClusterForEverybody":     {args: []string{"--cluster", "blue", "--cluster-listen", "0.0.0.0:6222", "--cluster-routes", "nats://a:1"}, want: "cluster.listen: 0.0.0.0:6222 can be reached from other machines"},
		"APasswordWithoutAUser":    {args: []string{"--cluster", "blue", "--cluster-listen", "127.0.0.1:6222", "--cluster-routes", "nats://a:1", "--cluster-password", "x"}, want: "cluster.user and cluster.password belong together"},
		"ANodeOfNoName":            {args: []string{"--node", "Node 1"}, want: `node: "Node 1" is no name`},
		"CredentialsWithoutServer": {args: []string{"--nats-creds", key}, want: "for nats.url, which is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := tc.args
			if tc.file != "" {
				args = append(args, "--config", writeFile(t, "instar.yaml", tc.file))
			}
			_, err := Load(Serve, flagSet(t, Serve, args...), tc.env)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestListeningBeyondLoopback(t *testing.T) {
	t.Parallel()
	cert, key := writeFile(t, "tls.crt", "x"), writeFile(t, "tls.key", "x")
	tokens := "auth: {tokens: [{name: a, hash: sha256:" + strings.Repeat("0", 64) + ", role: admin}]}"
	_, err := Load(Serve, flagSet(t, Serve, "--http", ":443", "--http-cert", cert, "--http-key", key, "--config", writeFile(t, "c.yaml", tokens)), nil)
	require.NoError(t, err, "with tokens and TLS")
	_, err = Load(Serve, flagSet(t, Serve, "--http", ":80", "--insecure"), nil)
	require.NoError(t, err, "when told so")
	_, err = Load(Serve, flagSet(t, Serve, "--http", "[::1]:0", "--nats", "localhost:0"), nil)
	require.NoError(t, err, "loopback has several names")
}

func TestRedacted(t *testing.T) {
	t.Parallel()
	c := Defaults(Serve)
	c.NATS.URL = "nats://me:canary@nats:4222"
	c.NATS.Users = []embedded.User{{Name: "reader", Password: "canary"}}
	c.Auth.Tokens = []Token{{Name: "ci", Hash: "canary"}}
	c.Gateways.Process.Templates = map[string]Template{"a": {Command: []string{"x"}, Env: map[string]string{"PGPASSWORD": "canary"}}}
	text := c.String()
	require.NotContains(t, text, "canary")
	require.Contains(t, text, "PGPASSWORD: '***'")
	require.Contains(t, text, "every: 1m0s")
	require.Equal(t, "canary", c.NATS.Users[0].Password, "the original stays")
	require.Equal(t, "canary", c.Gateways.Process.Templates["a"].Env["PGPASSWORD"], "the original stays")

	c.NATS.URL = "nats://me:canary@%zz"
	require.NotContains(t, c.String(), "canary", "also when the URL cannot be read")
}

func TestEveryScalarHasAnOption(t *testing.T) {
	t.Parallel()
	var keys, known []string
	scalars(reflect.TypeFor[Config](), "", &keys)
	for _, o := range options {
		known = append(known, o.key)
	}
	require.ElementsMatch(t, keys, known)
}

func scalars(t reflect.Type, at string, keys *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("koanf") == "-" {
			continue // no setting
		}
		key := strings.TrimPrefix(at+"."+f.Tag.Get("koanf"), ".")
		switch f.Type.Kind() {
		case reflect.Struct:
			scalars(f.Type, key, keys)
		case reflect.Slice, reflect.Map:
		default:
			*keys = append(*keys, key)
		}
	}
}
