package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// option is a setting that has a flag, an environment variable and a key in the file. Lists of tokens, users and
// templates are in the file only.
type option struct {
	flag string
	key  string
	doc  string
}

var options = []option{
	{"data", "data", "data directory"},
	{"durability", "durability", "what an accepted command survives: fsync (power loss), interval (kill -9; a power loss may cost the last 100 ms and what was written during a sync) or os (whatever the kernel has written)"},
	{"store-max", "store.max", "maximum size of the embedded server's store, such as 50GiB; empty is its present size plus the free disk space, less a reserve"},
	{"store-events", "store.events", "maximum size of the stream EVENTS, which drops its oldest messages beyond it; empty is half of the store"},
	{"store-dead-letters", "store.deadLetters", "maximum size of the stream DEAD_LETTERS, which drops its oldest messages beyond it; empty is a twentieth of the store"},
	{"http", "http.listen", "listen address of the HTTP API and its documentation"},
	{"http-hosts", "http.hosts", "comma-separated host names accepted in requests to a server without tokens, in addition to loopback names, IP addresses and, beyond loopback, the machine's own name; * accepts any"},
	{"require-if-match", "http.requireIfMatch", "comma-separated machines whose commands need If-Match, except those that create an entity"},
	{"ui-readonly", "ui.readonly", "let the web console only look: commands that a browser sends are refused"},
	{"ui-trace-url", "ui.traceUrl", "address where the web console links to traces, with {trace} for the id"},
	{"ui-grafana-url", "ui.grafanaUrl", "address of the Grafana dashboard that the web console links to"},
	{"http-header-timeout", "http.headerTimeout", "maximum time to read the headers of a request"},
	{"http-body-timeout", "http.bodyTimeout", "maximum time to read the body of a request"},
	{"http-write-timeout", "http.writeTimeout", "maximum time to write each 64 KiB of a response"},
	{"http-idle-timeout", "http.idleTimeout", "how long an idle connection is kept open"},
	{"http-cert", "http.tls.cert", "TLS certificate file of the HTTP listener"},
	{"http-key", "http.tls.key", "TLS key file of the HTTP listener"},
	{"nats", "nats.listen", "listen address of the embedded NATS server, which accepts only nats.users (dev: anyone); empty does not listen"},
	{"nats-url", "nats.url", "URL of an external NATS server to use instead of the embedded one"},
	{"nats-context", "nats.context", "nats CLI context whose server and credentials are used instead of the embedded server"},
	{"write-nats-context", "nats.writeContext", "nats CLI context to write at start, pointing at the embedded server; empty writes none"},
	{"nats-creds", "nats.creds", "credentials file for --nats-url"},
	{"nats-ca", "nats.tls.ca", "CA file that the server at --nats-url is verified with"},
	{"nats-cert", "nats.tls.cert", "TLS certificate file: of the client with --nats-url, of the listener otherwise"},
	{"nats-key", "nats.tls.key", "key file of --nats-cert"},
	{"nats-prefix", "nats.prefix", "first token of all subjects"},
	{"nats-replicas", "nats.replicas", "replicas of the streams that are created: 1, or 3 with --nats-url"},
	{"node", "node", "name of this node, stored in the data directory; empty keeps the stored one or generates one"},
	{"cluster", "cluster.name", "name of the NATS cluster that the embedded server joins; empty is a single server"},
	{"cluster-listen", "cluster.listen", "listen address for the other members of the cluster"},
	{"cluster-routes", "cluster.routes", "comma-separated addresses (nats://host:port) of the cluster's members"},
	{"cluster-user", "cluster.user", "user name that members of the cluster authenticate each other with"},
	{"cluster-password", "cluster.password", "password that goes with it; prefer the environment variable, which other users of the machine cannot see"},
	{"cluster-ca", "cluster.tls.ca", "CA file that members of the cluster are verified with"},
	{"cluster-cert", "cluster.tls.cert", "TLS certificate file of this member"},
	{"cluster-key", "cluster.tls.key", "TLS key file of this member"},
	{"replicas", "cluster.replicas", "replicas of every stream in a cluster: 3, or 5 with at least five members"},
	{"oidc-issuer", "auth.oidc.issuer", "URL of an OpenID Connect provider that people sign in to the console with; empty is none"},
	{"oidc-client", "auth.oidc.clientId", "client ID at the provider"},
	{"oidc-client-secret-file", "auth.oidc.clientSecretFile", "file with the client's secret"},
	{"oidc-url", "auth.oidc.url", "URL of this server as browsers reach it; the provider redirects to /v1/session/oidc/callback there"},
	{"oidc-name", "auth.oidc.name", "claim that is recorded as the actor; empty is email"},
	{"gateway", "gateway", "what runs services: process, knative, simulated, or external (your own workers)"},
	{"process-host", "gateways.process.host", "IP address that services listen on"},
	{"kubeconfig", "gateways.knative.kubeconfig", "kubeconfig file of the knative gateway; empty is the pod's service account, or kubectl's default"},
	{"kube-context", "gateways.knative.context", "context of the kubeconfig; empty is its current context"},
	{"kube-namespace", "gateways.knative.namespace", "Kubernetes namespace for all services; empty is the one with the name of the service's namespace"},
	{"kube-owner", "gateways.knative.owner", "label that distinguishes the objects of this installation from others"},
	{"idempotency-window", "idempotencyWindow", "how long the result of a command is kept for repetitions with the same idempotency key"},
	{"observe-every", "observe.every", "interval between observations of what providers run"},
	{"ready-stale", "observe.readyStale", "how long a stable READY is trusted without an observation"},
	{"effect-concurrency", "effects.concurrency", "maximum number of effects of one kind that run at once, on all nodes together"},
	{"task-concurrency", "tasks.concurrency", "maximum number of tasks that this node does at once; 0 is as many as it has processors, at least 4"},
	{"clone-max", "tasks.clone.max", "maximum size of a repository's checkout with its history"},
	{"clone-timeout", "tasks.clone.timeout", "maximum time of a clone, at most 24h"},
	{"clone-depth", "tasks.clone.depth", "commits of history that are cloned; -1 is all"},
	{"clone-files", "tasks.clone.files", "maximum number of files and folders of a repository's checkout"},
	{"clone-memory", "tasks.clone.memory", "private memory of each process that reads a repository: git, or an analysis"},
	{"clone-cpu", "tasks.clone.cpu", "processor time of each such process, in whole seconds"},
	{"clones-max", "tasks.clone.total", "maximum size of all checkouts of this node; empty is unlimited"},
	{"clone-keep", "tasks.clone.keep", "how long a checkout stays that is neither used nor current"},
	{"tasks-keep", "tasks.keep", "how long tasks stay that have ended; 0s is until they are deleted"},
	{"documents-max", "tasks.documents.max", "maximum size of all documents of tasks; empty is unlimited"},
	{"documents-per-repository", "tasks.documents.perRepository", "documents of a repository that are kept; 0 is unlimited"},
	{"documents-keep", "tasks.documents.keep", "how long documents are kept; 0s is until they are replaced"},
	{"exec-cpu", "tasks.exec.cpu", "processor time of each process of a task's program, in whole seconds; 0s is unlimited"},
	{"exec-memory", "tasks.exec.memory", "address space of each process of a task's program; empty is unlimited"},
	{"exec-file", "tasks.exec.file", "maximum size of a file that a task's program writes; empty is unlimited"},
	{"exec-disk", "tasks.exec.disk", "maximum size of all that a task's program writes; empty is unlimited"},
	{"exec-user", "tasks.exec.user", "user that programs of tasks run as, where the server runs as root; empty is the server's"},
	{"exec-output", "tasks.exec.output", "bytes of a program's output that are kept as log lines"},
	{"ended-for", "index.endedFor", "how long lists and counts include ended entities; 0s is forever"},
	{"drop-ended-after", "ended.dropAfter", "how long after their end the values of entities are kept; their names and events are readable longer; 0s is forever"},
	{"outbox-dsn", "outbox.dsn", "Postgres URL of a database whose outbox is relayed; name more in the file"},
	{"postgres", "outbox.postgres", "auto starts a private Postgres in the data directory when no database is configured; off does not"},
	{"tenants-source", "tenants.source.dsn", "Postgres URL of the database that tenants share; empty moves none of them"},
	{"tenants-source-file", "tenants.source.dsnFile", "file with that URL instead"},
	{"tenants-source-from", "tenants.source.from", "Postgres URL of that database as the servers of tenants reach it, for mode online"},
	{"tenants-keys", "tenants.keys", "file with the keyset that the credentials of tenants are sealed with"},
	{"tenants-migrations", "tenants.migrations", "directory with the SQL files of goose that make the schema of a tenant's database"},
	{"tenants-column", "tenants.column", "column that names the tenant; empty is enterprise_id"},
	{"tenants-range-rows", "tenants.rangeRows", "rows of one range of a copy, after which it can resume; 0 is 10000"},
	{"tenants-parallel", "tenants.parallel", "tables that one copy copies at a time; 0 is 2"},
	{"tenants-rate", "tenants.rate", "bytes per second of one copy, such as 50MiB; empty is unlimited"},
	{"tenants-audit-export", "tenants.auditExport", "absolute path of a directory, or s3://bucket/prefix, that records of the audit are copied to"},
	{"tenants-grace", "tenants.grace", "how long a database that was taken back is kept before it is dropped; 0s is 168h"},
	{"domains-https", "domains.https", "listen address of the proxy for domain names of tenants; empty disables it"},
	{"domains-http", "domains.http", "listen address for challenges, and for requests that are sent to https; empty does not listen"},
	{"acme", "domains.acme", "URL of the ACME directory that issues certificates"},
	{"acme-email", "domains.email", "address that the certificate authority may write to"},
	{"acme-ca", "domains.ca", "file with the root certificates that --acme is verified with; empty is the system's"},
	{"domains-keys", "domains.keys", "file with the keyset that private keys of certificates are sealed with"},
	{"domains-points", "domains.points", "name, or comma-separated addresses, of the proxy, where bound names have to lead; empty does not check it"},
	{"domains-resolvers", "domains.resolvers", "comma-separated addresses of the name servers that are asked; empty is the system's"},
	{"domains-reserved", "domains.reserved", "comma-separated names that cannot be bound, nor what is below them"},
	{"domains-targets", "domains.targets", "comma-separated networks that targets may be in; empty is any but this host, and in dev any"},
	{"acme-dns", "domains.dns.server", "address of a name server that takes updates (RFC 2136), for DNS-01; empty is none"},
	{"acme-dns-zones", "domains.dns.zones", "comma-separated zones of --acme-dns, whose names are proven by DNS-01"},
	{"acme-dns-key", "domains.dns.key", "file with the TSIG key for --acme-dns, as tsig-keygen writes it"},
	{"platform-domain", "platform.domain", "domain below which tenants have instances of their own; empty has none"},
	{"platform-instances-kind", "platform.instances.kind", "what runs instances: process, docker, systemd, knative (in the cluster of --kubeconfig) or external"},
	{"platform-instances-socket", "platform.instances.socket", "socket of the engine of containers, of the kind docker"},
	{"platform-storage-kind", "platform.storage.kind", "where buckets of tenants are: jetstream or s3"},
	{"platform-storage-listen", "platform.storage.listen", "listen address for clients of S3, by which releases reach their buckets in JetStream; empty does not listen"},
	{"platform-storage-endpoint", "platform.storage.endpoint", "URL of the store that speaks S3, or under which releases reach --platform-storage-listen"},
	{"platform-storage-region", "platform.storage.region", "region of buckets of S3"},
	{"platform-storage-bucket", "platform.storage.bucket", "bucket of S3 in which each tenant has a prefix; empty is a bucket for each"},
	{"platform-storage-credentials", "platform.storage.credentials", "file with this server's credentials for S3; empty looks where its tools do"},
	{"platform-storage-tenants", "platform.storage.tenants", "directory with credentials for S3 by tenant, which releases get"},
	{"platform-users", "platform.users", "range of users that tenants get, one each, as 200000-265535; this server's when empty"},
	{"platform-dir", "platform.dir", "directory of instances; empty is platform in the data directory"},
	{"platform-host", "platform.host", "IP address that instances listen on"},
	{"platform-ports", "platform.ports", "ports that instances listen on"},
	{"platform-health", "platform.health", "path that a live instance answers with a status below 400"},
	{"platform-readiness", "platform.readiness", "path that an instance which is ready answers with a status below 400, through the proxy"},
	{"platform-startup", "platform.startup", "how long an instance may take until it answers"},
	{"platform-drain", "platform.drain", "how long what a release still answers is waited for before it is ended, at most"},
	{"platform-logs", "platform.logs", "what instances of the kind process write can be read by the role read, for 14 days"},
	{"platform-quota-instances", "platform.quota.instances", "how many tenants may have instances; 0 is no limit"},
	{"platform-approval", "platform.approval", "each request of an instance waits for approve when it is planned"},
	{"platform-export", "platform.export", "directory that deprovision --export saves a tenant to; empty has no exports"},
	{"dns", "discovery.dns", "listen address of the DNS server for instances; empty disables it"},
	{"dns-domain", "discovery.dnsDomain", "domain of the names that the DNS server answers"},
	{"dns-ttl", "discovery.dnsTTL", "TTL of DNS answers, in whole seconds up to 1h; 0s disables caching"},
	{"xds", "discovery.xds", "listen address of the endpoint discovery service for Envoy; empty disables it"},
	{"xds-ca", "discovery.xdsTLS.ca", "CA file that clients of --xds are verified with"},
	{"xds-cert", "discovery.xdsTLS.cert", "TLS certificate file of --xds"},
	{"xds-key", "discovery.xdsTLS.key", "TLS key file of --xds"},
	{"discovery-namespaces", "discovery.namespaces", "comma-separated namespaces that --dns and --xds serve; * is all, as is an empty list on loopback"},
	{"probe-any-request", "discovery.probe.anyRequest", "allow checks to send any method, headers and body"},
	{"probe-match", "discovery.probe.match", "allow checks to match a regular expression in responses"},
	{"scripts", "discovery.scripts", "allow checks of type script to run programs on this machine"},
	{"max-connections", "limits.connections", "maximum HTTP connections; 0, or more than three quarters of the open-file limit, means three quarters of it"},
	{"max-connections-per-client", "limits.connectionsPerClient", "maximum HTTP connections per address; raise it behind a proxy; 0 is unlimited"},
	{"max-watches", "limits.watches", "maximum concurrent watches and blocking reads; 0 is unlimited"},
	{"max-watches-per-client", "limits.watchesPerClient", "maximum concurrent watches and blocking reads per token, or per address without tokens"},
	{"max-waits", "limits.waits", "maximum concurrent requests that wait for an entity to settle, an operation or a revision; 0 is unlimited"},
	{"max-waits-per-client", "limits.waitsPerClient", "maximum of these per client"},
	{"max-commands", "limits.commands", "maximum concurrent commands, queued or executing; 0 is unlimited"},
	{"max-commands-per-client", "limits.commandsPerClient", "maximum concurrent commands per client"},
	{"commands-at-once", "limits.commandsAtOnce", "maximum concurrent commands in the engine; others queue, and clients take turns; 0 is unlimited, without turns"},
	{"max-questions", "limits.questions", "maximum concurrent NATS requests, and HTTP reads from storage, queued or executing; 0 is unlimited"},
	{"max-questions-per-client", "limits.questionsPerClient", "maximum of these per client"},
	{"rate", "limits.rate", "maximum requests per second per client, over HTTP and NATS together; 0 is unlimited"},
	{"burst", "limits.burst", "requests that a client may send at once after a pause; 0 is as many as --rate allows in a second"},
	{"max-entities-per-namespace", "limits.entitiesPerNamespace", "maximum entities in one namespace, ended ones excluded; 0 is unlimited"},
	{"log-level", "log.level", "debug, info, warn or error"},
	{"log-format", "log.format", "text or json"},
	{"insecure", "insecure", "allow listening beyond loopback without tokens and TLS, and accept anyone at a NATS listener without users"},
	{"stop-services", "stopServices", "stop the services when the server stops"},
}

// env is the name of the option's environment variable.
func (o option) env() string {
	return "INSTAR_" + strings.ToUpper(strings.ReplaceAll(o.flag, "-", "_"))
}

// path is the option's key as koanf has it here.
func (o option) path() string { return strings.ReplaceAll(o.key, ".", delim) }

// Flags declares a flag per option, with the mode's default, and --config.
func Flags(fs *pflag.FlagSet, mode string) {
	fs.String("config", "", "configuration file (YAML); INSTAR_CONFIG")
	k := koanf.New(delim)
	if err := k.Load(structs.Provider(Defaults(mode), "koanf"), nil); err != nil {
		panic(err)
	}
	for _, o := range options {
		doc := o.doc + "; " + o.env()
		switch v := k.Get(o.path()).(type) {
		case string:
			fs.String(o.flag, v, doc)
		case bool:
			fs.Bool(o.flag, v, doc)
		case int:
			fs.Int(o.flag, v, doc)
		case time.Duration:
			fs.Duration(o.flag, v, doc)
		default:
			panic(fmt.Sprintf("option %s: no flag for a %T at %s", o.flag, v, o.key))
		}
	}
}
