package floorplan

// room is a row of the table: what the packages of a folder may import besides the standard library. The row with the
// longest path is that of a package; "x/..." stands for x and everything below it.
type room struct {
	path    string
	ours    []string // of our module
	outside []string // by the beginning of the path; "*" is anything
	banned  []string // of the standard library
	tests   []string // of our module, besides ours, in tests only
}

const anything = "*"

var (
	nats    = "github.com/nats-io"
	natsgo  = "github.com/nats-io/nats.go"
	nuid    = "github.com/nats-io/nuid"
	pgx     = "github.com/jackc/pgx/v5"
	testify = "github.com/stretchr/testify"
	otel    = "go.opentelemetry.io/otel"
	metrics = "github.com/prometheus/client_golang"
	uuid    = "github.com/google/uuid"
	goose   = "github.com/pressly/goose/v3"
	grpc    = "google.golang.org/grpc"
	dns     = "github.com/miekg/dns"
	xsys    = "golang.org/x/sys"
)

// impure is what a machine has no use for: time comes in with the input, work goes out as data.
var impure = []string{"net/...", "os/...", "log/...", "database/...", "math/rand/...", "crypto/rand", "io/fs", "syscall", "testing/..."}

// dear is what no code of the house imports: templates call methods by their names, with which the linker keeps every exported method of everything, a fifth
// of the binary.
var dear = []string{"html/template", "text/template"}

// modules are the folders with a go.mod that the plan is about.
var modules = []string{".", "bench", "torture"}

// plan is the house. What acts (api, consumers, providers) never imports one another; what is below never imports what
// is above; a lifecycle is named only by its own folders (its machine, its provider, its packages in consumers, api and server), machines/all and server/builtin.
var plan = []room{
	{path: "machines", ours: []string{"internal/jsonwrite", "internal/strictjson"}, outside: []string{"github.com/looplab/fsm"}, banned: impure, tests: []string{"machines/diagram", "machines/transcript"}},
	{path: "machines/...", ours: []string{"machines"}, banned: impure, tests: []string{"machines/machinetest", "machines/transcript"}},
	{path: "machines/instance/reader", ours: []string{"internal/jsonscan", "machines/instance"}, banned: impure},
	{path: "machines/instance", ours: []string{"machines"}, banned: impure, tests: []string{"machines/machinetest", "machines/transcript", "machines/instance/reader"}},
	{path: "machines/task", ours: []string{"machines"}, outside: []string{"github.com/adhocore/gronx"}, banned: impure, tests: []string{"machines/machinetest", "machines/transcript"}}, // when a schedule comes next, a function of its time
	{path: "machines/queue", ours: []string{"machines", "machines/task"}, banned: impure, tests: []string{"machines/transcript"}},                                                       // its bounds are those of tasks
	{path: "machines/domain", ours: []string{"machines", "machines/instance"}, banned: impure, tests: []string{"machines/transcript"}},                                                  // what an address is
	{path: "machines/database", ours: []string{"machines", "machines/session"}, banned: impure, tests: []string{"machines/machinetest", "machines/transcript"}},                         // what sessions share
	{path: "machines/platform", ours: []string{"machines", "machines/database", "machines/session"}, banned: impure, tests: []string{"machines/machinetest", "machines/transcript"}},    // and the tasks of the database steps
	{path: "machines/all", ours: []string{"machines/..."}, banned: impure},
	{path: "machines/registry", ours: []string{"machines"}, banned: impure},
	{path: "machines/machinetest", ours: []string{"machines"}, outside: []string{testify, "pgregory.net/rapid"}},
	{path: "machines/transcript", ours: []string{"machines", "machines/diagram"}, outside: []string{testify}},

	{path: "streams", outside: []string{natsgo}, tests: servers},
	{path: "streams/publish", ours: []string{"streams"}, outside: []string{natsgo, nuid}},
	// The server itself is in one package, so that what acts does not depend on it.
	{path: "streams/embedded", ours: []string{"internal/renew", "streams"}, outside: []string{nats, xsys}, tests: []string{"internal/powerloss", "internal/selfsigned", "streams/publish"}},
	// What records of an audit look like, and how chains of them are checked: by whoever writes, reads or has exported them.
	{path: "streams/audit", ours: []string{"streams"}, outside: []string{natsgo}},
	{path: "streams/streamstest", ours: []string{"streams", "streams/embedded"}, outside: []string{natsgo, testify}},
	// The outbox has both ends: the tables of an application, and the stream.
	{path: "streams/outbox/...", ours: []string{"streams/..."}, outside: []string{nats, pgx, uuid, goose}, tests: []string{"internal/postgres"}},
	// A relay: rows go from its mode (log, claim) by a session of a shard into the sink.
	{path: "streams/outbox/relay", ours: []string{"internal/wait", "streams", "streams/outbox/..."}, outside: []string{natsgo, pgx, uuid}, tests: []string{"internal/postgres"}},
	{path: "streams/outbox/relay/sink", ours: []string{"streams", "streams/outbox", "streams/publish"}, outside: []string{natsgo, nuid, uuid}},
	{path: "streams/outbox/relay/session", ours: []string{"streams", "streams/outbox", "streams/outbox/relay/sink"}, outside: []string{natsgo, nuid, pgx}, tests: []string{"streams/outbox/relay/relaytest"}},
	{path: "streams/outbox/relay/shard", ours: []string{"streams", "streams/outbox/relay/session"}, outside: []string{natsgo}},
	{path: "streams/outbox/relay/control", ours: []string{"streams/outbox", "streams/outbox/relay/session", "streams/outbox/relay/sink"}},
	{path: "streams/outbox/relay/log/...", ours: []string{
		"streams/outbox", "streams/outbox/relay/control", "streams/outbox/relay/log/deliver", "streams/outbox/relay/session", "streams/outbox/relay/shard", "streams/outbox/relay/sink",
	}, outside: []string{pgx, uuid}, tests: []string{"streams/outbox/relay/relaytest", "streams/embedded"}},
	{path: "streams/outbox/relay/claim", ours: []string{
		"internal/wait", "streams/outbox", "streams/outbox/relay/control", "streams/outbox/relay/session", "streams/outbox/relay/shard", "streams/outbox/relay/sink",
	}, outside: []string{pgx, uuid}, tests: []string{"streams/outbox/relay/relaytest"}},
	{path: "streams/outbox/relay/relaytest", ours: []string{
		"internal/postgres", "streams", "streams/embedded", "streams/outbox", "streams/outbox/relay/session", "streams/outbox/relay/sink", "streams/streamstest",
	}, outside: []string{natsgo, pgx, uuid, testify, "go.uber.org/goleak"}},

	{path: "kv/...", ours: []string{"internal/boottime", "internal/wait", "kv/...", "streams", "streams/publish"}, outside: []string{natsgo}},
	{path: "kv/index", ours: []string{"internal/boottime", "internal/jsonscan", "kv/internal/feed"}, outside: []string{natsgo, "github.com/tidwall/btree"}, tests: []string{"kv/kvtest", "streams"}},
	{path: "kv/certificates", ours: []string{"internal/wait", "kv", "streams"}, outside: []string{natsgo, nuid, "github.com/caddyserver/certmagic"}, tests: []string{"kv/kvtest"}}, // certmagic's storage
	{path: "kv/kvtest", ours: []string{"streams"}, outside: []string{nats, testify}},

	{path: "providers/...", ours: []string{"internal/ownfile", "internal/panics", "internal/pdeathsig", "internal/strictjson", "machines/...", "providers/..."}, outside: []string{
		pgx, uuid, xsys, "k8s.io", "sigs.k8s.io", dns, "github.com/go-git", "github.com/go-enry", grpc,
		"github.com/CycloneDX", "github.com/package-url", "golang.org/x/mod", // what analyses of a repository read and write
		"github.com/caddyserver/certmagic", "github.com/tink-crypto", otel,
	}, tests: []string{"internal/rebind"}},
	{path: "providers/process/child", ours: []string{"providers/group"}, outside: []string{uuid, xsys}, tests: []string{"providers/group/grouptest"}},
	{path: "providers/group/grouptest", outside: []string{testify, xsys}},
	{path: "providers/providertest", ours: []string{"machines/...", "providers"}, outside: []string{testify}},

	// Databases of tenants: each part knows Postgres, and only the provider above them knows the machine.
	{path: "providers/database/...", ours: []string{"internal/wait", "machines", "machines/database", "providers", "providers/database/..."}, outside: []string{
		pgx, "github.com/jackc/pglogrepl", goose, "github.com/tink-crypto/tink-go/v2", "golang.org/x/sync", "golang.org/x/time",
	}, tests: []string{"internal/postgres"}},
	// Instances of tenants: storage knows its stores, and nothing of the machine.
	{path: "providers/platform", ours: []string{
		"internal/wait", "machines", "machines/database", "machines/domain", "machines/platform", "machines/session", "providers", "providers/domain", "providers/platform/app", "providers/platform/storage",
	}, tests: []string{"internal/postgres", "providers/database/...", "providers/domain/proxy", "providers/platform/process", "providers/process/builtin", "streams/embedded", "streams/streamstest"}},
	// What runs releases: each kind knows the contract, what it runs them by, and no other kind.
	{path: "providers/platform/app", ours: []string{"internal/ownfile", "machines", "providers"}},
	{path: "providers/platform/app/apptest", ours: []string{"internal/lockedbuffer", "providers", "providers/platform/app"}, outside: []string{testify}},
	{path: "providers/platform/process", ours: []string{"internal/ownfile", "internal/wait", "machines", "machines/service", "providers", "providers/platform/app", "providers/process", "providers/process/builtin", "providers/process/cgroup", "providers/process/logfile"}, tests: []string{"providers/platform/app/apptest"}},
	{path: "providers/platform/hosted", ours: []string{"internal/ownfile", "internal/wait", "machines", "providers", "providers/platform/app", "providers/process/environ"}, tests: []string{"providers/platform/app/apptest"}},
	{path: "providers/platform/knative", ours: []string{"internal/wait", "machines", "machines/service", "providers", "providers/knative", "providers/platform/app", "providers/process/environ"}, tests: []string{"providers/knative/knativetest", "providers/platform/app/apptest", "providers/platform/knative/clustertest"}},
	{path: "providers/platform/knative/clustertest", ours: []string{"providers/knative/knativetest", "providers/platform/app/apptest"}, outside: []string{testify}},
	{path: "providers/platform/external", ours: []string{"internal/wait", "machines", "providers", "providers/platform/app", "providers/process/environ", "streams"}, outside: []string{natsgo}, tests: []string{"providers/platform/app/apptest", "providers/platform/process", "providers/process/builtin", "streams/embedded", "streams/streamstest"}},
	{path: "providers/platform/export", ours: []string{"internal/ownfile", "providers", "providers/database/pg", "providers/platform/storage"}, outside: []string{pgx}, tests: []string{"internal/postgres", "providers/database/databasetest", "streams/embedded", "streams/streamstest"}},
	{path: "providers/platform/storage", ours: []string{"internal/wait", "providers"}, outside: []string{natsgo, nuid, "github.com/minio/minio-go/v7"}, tests: []string{"internal/s3", "providers/platform/storage/storagetest", "streams/embedded", "streams/streamstest"}},
	{path: "providers/platform/storage/gateway", ours: []string{"internal/panics", "internal/wait", "kv", "providers", "providers/database/secret", "providers/platform/storage"}, outside: []string{natsgo, nuid, "github.com/minio/minio-go/v7", "github.com/rclone/gofakes3", "pgregory.net/rapid"}, tests: []string{"streams", "streams/embedded", "streams/streamstest"}},
	{path: "providers/platform/storage/storagetest", ours: []string{"providers", "providers/platform/storage"}, outside: []string{testify}},
	{path: "providers/database/databasetest", ours: []string{"internal/postgres", "providers/database/..."}, outside: []string{pgx, testify}},

	// In front of tenants' applications: it serves a table, and knows nothing of what makes it.
	{path: "providers/domain/proxy", outside: []string{metrics}},

	// A relay is something in the world that runs: what starts and stops it knows the outbox.
	{path: "providers/domain", ours: []string{"machines", "machines/domain", "providers"}, outside: []string{"github.com/caddyserver/certmagic", "github.com/libdns/rfc2136", "github.com/mholt/acmez/v3", "go.uber.org/zap"}},
	{path: "providers/relay", ours: []string{"internal/panics", "machines", "machines/relay", "providers", "streams/..."}, outside: []string{natsgo, pgx}, tests: []string{"internal/postgres"}},

	{path: "consumers", ours: []string{"internal/wait", "machines", "machines/registry", "streams", "streams/publish", "kv"}, outside: []string{natsgo}},
	{path: "consumers/...", ours: []string{"internal/panics", "internal/wait", "consumers", "machines", "machines/registry", "streams", "streams/publish", "kv", "kv/index"}, outside: []string{natsgo, otel}, tests: []string{"consumers/...", "machines/..."}},
	{path: "consumers/cluster", ours: []string{"consumers", "internal/boottime", "internal/wait", "streams", "streams/publish", "kv", "kv/index"}, outside: []string{natsgo}, tests: []string{"consumers", "consumers/consumertest", "machines/..."}},
	{path: "consumers/poison", ours: []string{"consumers", "consumers/cluster", "streams", "streams/publish", "kv"}},
	{path: "consumers/bulkack", ours: []string{"streams"}, outside: []string{natsgo}},
	{path: "consumers/reconcile", ours: []string{"internal/boottime", "internal/wait", "consumers", "consumers/cluster", "machines", "streams", "streams/publish", "kv", "kv/index"}, outside: []string{natsgo}},
	{path: "consumers/audit", ours: []string{"consumers", "internal/wait", "machines", "streams", "streams/audit", "streams/publish"}, outside: []string{natsgo}, tests: []string{"consumers/consumertest", "consumers/engine", "internal/archive"}},
	// It has the engine drop what ended long ago, so it is beside the engine, and below it.
	{path: "consumers/ended", ours: []string{"internal/wait", "consumers", "machines", "streams", "streams/publish", "kv", "kv/index"}, outside: []string{natsgo}, tests: []string{"consumers/consumertest", "consumers/engine", "machines/..."}},
	{path: "consumers/effects", ours: []string{"internal/failpoint", "internal/panics", "internal/wait", "consumers", "consumers/poison", "machines", "streams", "streams/publish", "kv"}, outside: []string{natsgo}, tests: []string{"consumers/engine", "consumers/consumertest", "machines/..."}},
	{path: "consumers/engine", ours: []string{
		"internal/boottime", "internal/failpoint", "internal/panics", "internal/wait", "consumers", "consumers/answers", "consumers/bulkack", "consumers/cluster", "consumers/ended", "consumers/poison", "consumers/reconcile", "machines", "streams", "streams/publish", "kv", "kv/index",
	}, outside: []string{natsgo}, tests: []string{"consumers/effects", "consumers/consumertest", "machines/..."}},

	// What the tests of the consumers stand on.
	{path: "consumers/consumertest", ours: []string{"consumers", "internal/wait", "machines/...", "streams", "streams/embedded", "streams/publish", "kv", "kv/index"}, outside: []string{nats, testify, "go.uber.org/goleak"}},

	// What is kept is written without reflection: there is one with each command that has a key.
	{path: "consumers/answers", ours: []string{"internal/jsonwrite", "kv", "machines", "streams", "streams/publish"}, outside: []string{natsgo}},
	{path: "consumers/backup", ours: []string{"internal/wait", "consumers", "consumers/answers", "kv", "machines", "streams", "streams/publish"}, outside: []string{natsgo, nuid, "github.com/klauspost/compress"}, tests: []string{"machines/..."}},

	// What is done beside the transitions of one lifecycle knows that lifecycle: checks of instances, what is found of them.
	{path: "consumers/prober/localhealth"},
	{path: "consumers/prober/watchers"},
	{path: "consumers/prober/heartbeat", ours: []string{"internal/strictjson"}},
	{path: "consumers/prober/quorum", ours: []string{"machines/instance"}},
	{path: "consumers/prober/pool", ours: []string{"internal/panics", "machines/instance"}},
	{path: "consumers/prober", ours: []string{"internal/panics", "internal/strictjson", "consumers", "consumers/cluster", "consumers/prober/...", "machines", "machines/instance", "machines/preservation", "streams", "streams/publish", "kv", "kv/index"}, outside: []string{natsgo, otel}, tests: []string{"consumers/engine", "machines/...", "providers/probe"}},
	// Tasks are scheduled and repositories derived by what knows both; the decisions themselves are pure.
	{path: "consumers/orchestrator/lost"},
	{path: "consumers/orchestrator/presence", outside: []string{natsgo}, tests: []string{"streams", "streams/embedded"}},
	{path: "consumers/orchestrator/schedule"},
	{path: "consumers/orchestrator/tally", ours: []string{"machines/repository"}},
	{path: "consumers/orchestrator", ours: []string{"internal/jsonscan", "internal/jsonwrite", "consumers", "consumers/orchestrator/...", "machines", "machines/queue", "machines/repository", "machines/task", "streams", "streams/publish", "kv", "kv/index"}, outside: []string{natsgo}, tests: []string{"internal/wait", "consumers/...", "machines/..."}},
	{path: "api/discovery", ours: []string{"machines", "machines/instance", "machines/preservation", "streams", "kv", "kv/index"}, outside: []string{natsgo}, tests: []string{"machines/..."}},
	{path: "api/limits", outside: []string{metrics, "golang.org/x/time"}},
	{path: "api/nameserver", ours: []string{"internal/panics", "api/discovery", "api/limits"}, outside: []string{dns}},
	{path: "api/xds", ours: []string{"internal/panics", "api/discovery", "api/limits"}, outside: []string{grpc, "github.com/envoyproxy/go-control-plane", "google.golang.org/protobuf"}},

	{path: "api/tasks", ours: []string{"api/auth", "api/commands", "api/entities", "api/logs", "api/problem", "api/rest", "kv/index", "machines", "machines/task", "streams", "streams/publish"}, outside: []string{"github.com/danielgtaylor/huma/v2", natsgo}}, // what clients ask of tasks besides their commands
	{path: "api/console", ours: []string{"machines", "api/auth", "api/problem", "api/rest"}, outside: []string{"github.com/danielgtaylor/huma/v2"}, tests: []string{"api", "machines/...", "streams/...", "kv/...", "internal/..."}},                             // a page, and sessions: all else that it shows is the API of everybody
	{path: "api/signin", ours: []string{"api/auth", "api/limits", "api/problem", "api/rest"}, outside: []string{"github.com/danielgtaylor/huma/v2", "github.com/coreos/go-oidc/v3", "golang.org/x/oauth2", "golang.org/x/sync"}},                                 // people whom a provider identifies
	{path: "api/audit", ours: []string{"api/auth", "api/problem", "api/rest", "streams", "streams/audit"}, outside: []string{"github.com/danielgtaylor/huma/v2", natsgo}},
	{path: "api/...", ours: []string{"internal/jsonwrite", "internal/panics", "internal/strictjson", "api/...", "machines", "machines/registry", "machines/diagram", "streams", "streams/publish", "kv", "kv/index"}, outside: []string{
		"github.com/danielgtaylor/huma/v2", natsgo, nuid, metrics, otel,
	}, tests: []string{"machines/...", "internal/rebind"}},

	// What applications import: it speaks HTTP and needs nothing of the house.
	{path: "client", ours: []string{"client/internal/..."}, tests: []string{"client/..."}},
	// Workers of effects are clients of NATS, and of nothing else of the house.
	{path: "client/worker", outside: []string{natsgo}, tests: []string{"consumers/consumertest", "consumers/effects", "consumers/engine", "machines", "streams", "streams/publish"}},
	// Connections to tenants' databases follow a bucket; its credentials are opened by what has sealed them.
	{path: "client/tenantdb", ours: []string{"providers/database/pg", "providers/database/secret", "streams"}, outside: []string{natsgo, nuid, pgx, "golang.org/x/sync"}, tests: []string{"internal/postgres", "streams/embedded", "streams/streamstest"}},
	{path: "client/...", ours: []string{"client"}, outside: []string{grpc}, tests: []string{"client/..."}},

	// What a server can be told: read, checked, shown without secrets.
	{path: "server/config", ours: []string{"api", "api/auth", "api/limits", "api/rest", "api/signin", "machines", "streams", "streams/embedded", "streams/outbox"}, outside: []string{
		"github.com/knadh/koanf", "github.com/spf13/pflag", "go.yaml.in/yaml", "github.com/dustin/go-humanize",
	}, tests: []string{"internal/selfsigned"}},

	// What assembles all of it. What serves one machine is a provider in a folder of its own, which knows the server, and which the
	// server does not know; builtin puts together those that ship.
	{path: "server", ours: []string{"api/...", "consumers/...", "internal/...", "kv", "kv/index", "machines", "machines/registry", "streams", "streams/embedded", "streams/publish", "server/backlog", "server/buffers", "server/build", "server/config", "server/disk", "server/memory", "server/natscli", "server/systemd"}, outside: []string{anything}, tests: []string{"machines/...", "providers/..."}},
	// It knows whoever lets something wait, to say how much.
	{path: "server/build"},
	{path: "server/buffers", ours: []string{"api", "api/admin", "api/discovery", "api/watch", "consumers", "consumers/engine", "consumers/observer", "consumers/orchestrator", "consumers/prober", "kv/index", "streams"}, outside: []string{"github.com/dustin/go-humanize"}},
	{path: "server/backlog", ours: []string{"streams"}, outside: []string{natsgo, metrics}, tests: []string{"streams/embedded"}},
	{path: "server/disk", ours: []string{"api/admin", "streams", "streams/embedded", "streams/publish"}, outside: []string{natsgo, metrics, "github.com/dustin/go-humanize"}},
	{path: "server/memory"},
	{path: "server/natscli", ours: []string{"internal/ownfile"}, outside: []string{natsgo, "github.com/synadia-io/orbit.go/natscontext"}},
	{path: "server/servertest", ours: []string{"server", "server/config"}, outside: []string{natsgo, testify}},
	{path: "server/systemd", tests: []string{"machines/...", "server", "server/config"}},
	{path: "server/services", ours: []string{"consumers/effects", "machines", "machines/service", "providers/...", "server", "server/config", "streams", "streams/publish"}},
	{path: "server/instances", ours: []string{"api/...", "consumers/...", "machines", "machines/instance", "machines/instance/reader", "machines/preservation", "providers/probe", "server", "server/config", "streams", "streams/publish"}, outside: []string{metrics}},
	{path: "server/tasks", ours: []string{"api", "api/problem", "api/rest", "api/tasks", "consumers", "consumers/cluster", "consumers/effects", "consumers/orchestrator/...", "internal/wait", "kv", "kv/index", "machines", "machines/queue", "machines/repository", "machines/task", "providers/group", "providers/guard", "providers/runner/...", "server", "server/config", "server/logs", "server/tasks/documents", "streams", "streams/publish"}, outside: []string{natsgo, metrics}, tests: []string{"client/worker", "internal/postgres", "machines/...", "server/...", "streams/outbox"}},
	{path: "server/tasks/documents", ours: []string{"internal/wait", "machines/task"}, outside: []string{natsgo}, tests: []string{"streams/..."}}, // what tasks have written
	{path: "server/tenants", ours: []string{"api", "api/audit", "api/auth", "api/problem", "api/rest", "client/tenantdb", "consumers/audit", "internal/archive", "internal/wait", "kv", "kv/index", "machines", "machines/database", "providers/database/...", "server", "server/config", "server/keyset", "streams", "streams/audit", "streams/publish"}, outside: []string{"github.com/danielgtaylor/huma/v2", natsgo, metrics}, tests: []string{"internal/postgres", "machines/...", "server/..."}},
	{path: "server/logs", ours: []string{"streams"}, outside: []string{natsgo}}, // the stream that has those of tasks and of instances
	{path: "server/keyset", ours: []string{"providers/database/secret"}},
	{path: "server/domains", ours: []string{"api", "api/admin", "api/limits", "api/problem", "internal/wait", "kv", "kv/certificates", "kv/index", "machines", "machines/domain", "providers/domain/...", "providers/guard", "server", "server/config", "server/keyset", "streams", "streams/publish"}, outside: []string{metrics}, tests: []string{"internal/authority", "machines/...", "server/...", "streams/..."}},
	{path: "server/platform", ours: []string{"api", "api/limits", "api/logs", "api/rest", "internal/s3", "internal/wait", "kv", "kv/index", "machines", "machines/database", "machines/domain", "machines/platform", "providers", "providers/database/secret", "providers/domain", "providers/knative", "providers/platform/...", "providers/process", "server", "server/config", "server/domains", "server/logs", "server/tenants", "streams", "streams/publish"}, outside: []string{natsgo, "github.com/minio/minio-go/v7"}, tests: []string{"internal/authority", "internal/postgres", "machines/...", "providers/database/...", "providers/process/builtin", "server/...", "streams/..."}}, // it gives what these two have
	{path: "server/relays", ours: []string{"api", "api/admin", "internal/postgres", "internal/wait", "kv", "kv/index", "machines", "machines/relay", "providers/relay", "server", "server/config", "streams/..."}, outside: []string{natsgo, pgx, uuid, metrics}},
	{path: "server/builtin", ours: []string{"machines/...", "providers/process/builtin", "server/..."}},

	// The binary: main names the machines that ship, the command line takes them from the options that it is given.
	{path: "cmd/...", ours: []string{anything}, outside: []string{anything}},
	{path: "cmd/instar/cli/...", ours: []string{"api/...", "cmd/instar/cli/...", "cmd/instar/demo", "cmd/instar/demo/platform", "cmd/instar/demo/repositories", "cmd/instar/internal/...", "consumers/backup", "internal/archive", "internal/ownfile", "machines", "machines/diagram", "server", "server/build", "server/config", "server/natscli", "server/relays", "streams/..."}, outside: []string{anything}, tests: []string{"machines/...", "server/builtin", "internal/..."}},
	{path: "cmd/instar/demo", ours: []string{"client", "client/tenantdb", "cmd/instar/cli/command", "internal/...", "machines", "machines/database", "machines/instance", "machines/queue", "machines/repository", "machines/task", "providers/database/secret", "server", "server/config", "server/tasks", "server/tenants", "streams/..."}, outside: []string{anything}, tests: []string{"cmd/instar/demo/demotest", "server/builtin"}},
	{path: "cmd/instar/demo/platform", ours: []string{"cmd/instar/cli/command", "cmd/instar/demo", "internal/...", "machines", "machines/database", "machines/domain", "machines/platform", "machines/session", "providers/database/admin", "providers/domain", "server", "server/config", "server/domains", "server/platform", "server/tenants", "streams"}, outside: []string{anything}, tests: []string{"cmd/instar/demo/demotest", "server/builtin"}},
	{path: "cmd/instar/demo/repositories", ours: []string{"cmd/instar/cli/command", "cmd/instar/demo", "internal/wait", "machines", "machines/queue", "machines/repository", "machines/task", "server", "server/config", "server/tasks"}, outside: []string{anything}, tests: []string{"cmd/instar/demo/demotest", "internal/lockedbuffer"}},
	{path: "cmd/instar/demo/demotest", outside: []string{"github.com/spf13"}},
	{path: "internal/s3", outside: []string{"github.com/minio/minio-go/v7"}},
	{path: "internal/archive", ours: []string{"internal/s3"}, outside: []string{"github.com/minio/minio-go/v7", xsys, testify}},
	{path: "cmd/instar/internal/...", ours: []string{"cmd/instar/internal/..."}, outside: []string{"github.com/spf13", "go.yaml.in/yaml"}},

	// What measures and tortures the program runs it as a process; it has modules of its own, for the sake of their libraries.
	{path: "bench/...", ours: []string{"api", "bench/internal/rig", "client/...", "consumers/...", "internal/...", "kv", "kv/index", "machines/...", "providers/database/...", "providers/domain/proxy", "streams/..."}, outside: []string{anything}},
	{path: "torture/...", ours: []string{"client/...", "internal/...", "machines/...", "streams/...", "torture/..."}, outside: []string{anything}},

	// The documents are checked against the tables; their example is a machine with its provider.
	{path: "docs", ours: []string{"machines/..."}, outside: []string{testify, "go.yaml.in/yaml"}},
	{path: "docs/examples/...", ours: []string{"machines", "client/...", "streams/outbox", "docs/examples/..."}, outside: []string{natsgo, pgx, uuid, grpc}, tests: []string{"machines/...", "streams", "streams/publish", "kv", "consumers/...", "internal/postgres"}},

	{path: "internal/strictjson", ours: []string{"internal/jsonwrite"}, outside: []string{testify}}, // what it keeps it writes again
	{path: "internal/...", outside: []string{testify}},
	// A model of JetStream in memory. It has the server's own types and error codes, so that its answers are the server's; what it does is its own.
	// The simulation runs the program's own parts; only programs of its own, built by its command, import it.
	{path: "internal/simulation", ours: []string{"consumers/...", "internal/boottime", "internal/simulation/...", "kv/index", "machines/...", "streams", "streams/publish"}, outside: []string{natsgo, testify}},
	{path: "internal/simulation/schedule", ours: []string{"internal/simulation/orders", "machines/...", "streams"}}, // the machines that take part, and how long streams remember ids
	{path: "internal/simulation/orders", ours: []string{"machines/..."}},
	{path: "internal/simulation/outside", ours: []string{"internal/simulation/orders", "machines/..."}},
	{path: "internal/simulation/limits", ours: []string{"internal/simulation/seen", "machines/..."}},          // which events begin and end an attempt
	{path: "internal/simulation/seen", ours: []string{"internal/simulation/operator", "machines", "streams"}}, // which event tells of a restore
	{path: "internal/simulation/pinned"},
	{path: "internal/simulation/seeds", ours: []string{"internal/simulation/pinned", "internal/simulation/trace"}, outside: []string{testify}},
	{path: "internal/simulation/wake"},
	{path: "internal/simulation/trace"},
	{path: "internal/simulation/operator", ours: []string{"consumers", "consumers/backup", "machines", "streams", "streams/publish"}, outside: []string{natsgo}}, // with what users have
	{path: "internal/simulation/disk", ours: []string{"internal/simulation/model/...", "streams"}},                                                               // the order in which streams are synced is that of their names
	{path: "internal/simulation/overlay", outside: []string{testify}},
	{path: "internal/simulation/mutants", ours: []string{"internal/simulation/overlay"}, tests: []string{"internal/simulation/schedule", "internal/simulation/shop"}, outside: []string{testify}},
	{path: "internal/simulation/cmd/simulate", ours: []string{"internal/simulation/mutants", "internal/simulation/overlay"}},
	// A model of the outbox's tables, and the relays of one beside both models. What an append does with a shard, and what the relay asks, is that of the outbox.
	{path: "internal/simulation/tables", ours: []string{"internal/simulation/model/wire", "streams/outbox"}, outside: []string{pgx, uuid, testify}, tests: []string{"internal/postgres"}},
	{path: "internal/simulation/shop", ours: []string{"internal/simulation/schedule", "internal/simulation/tables", "streams", "streams/outbox/..."}, outside: []string{natsgo, pgx, uuid, testify}, tests: []string{"internal/postgres"}},
	{path: "internal/simulation/relays", ours: []string{
		"internal/simulation/model/...", "internal/simulation/pinned", "internal/simulation/schedule", "internal/simulation/seeds", "internal/simulation/shop", "internal/simulation/tables", "internal/simulation/trace", "internal/simulation/wake",
		"streams", "streams/outbox/relay",
	}, outside: []string{natsgo, uuid, testify}},
	{path: "internal/simulation/model/...", ours: []string{"internal/simulation/model/..."}, outside: []string{nats, testify}, tests: []string{"streams/...", "kv/..."}},
	{path: "internal/boottime", outside: []string{xsys}},
	{path: "internal/crosscheck", outside: []string{testify, "golang.org/x/tools"}},
	{path: "internal/renew", outside: []string{testify}, tests: []string{"internal/selfsigned"}},
	{path: "internal/rebind", outside: []string{dns, testify}},
	{path: "internal/authority", outside: []string{"github.com/letsencrypt/pebble/v2", dns}},
	{path: "internal/postgres", ours: []string{"internal/pdeathsig"}, outside: []string{pgx}}, // asks its server whether it is there
}

// testLibraries is what tests may import from outside, besides what their folder may.
var testLibraries = []string{
	testify, nats, pgx, "go.uber.org/goleak", "pgregory.net/rapid", "github.com/getkin/kin-openapi",
	metrics, otel, xsys, grpc, dns, "google.golang.org/protobuf", "github.com/johannesboyne/gofakes3", "github.com/klauspost/compress/zstd", "github.com/letsencrypt/pebble/v2",
}

// tools are what tests of every folder may import.
var tools = []string{"internal/lockedbuffer", "internal/testenv"}

// servers are what tests of a folder that knows the streams may import besides: they run a server.
var servers = []string{"streams/embedded", "streams/streamstest"}

// documented are the folders whose contract is in a doc.go.
var documented = []string{"machines", "streams", "kv", "providers", "consumers", "api"}

// clocks are the functions of package time that look at or wait for the clock.
var clocks = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}

// maxLines is the length of a file that can be read in a sitting.
const maxLines = 400

// maxPackageLines is how much of a package somebody can know, without its tests and what is generated.
const maxPackageLines = 2500
