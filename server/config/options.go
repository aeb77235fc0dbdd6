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
	{"data", "data", "directory of all data"},
	{"durability", "durability", "what an accepted command survives: fsync (power loss), interval (kill -9; power loss up to 100 ms and the time of a sync) or os"},
	{"store-max", "store.max", "bytes that the embedded server may store, such as 50GiB; empty is what it has and what is left of the disk, but for a reserve"},
	{"store-events", "store.events", "bytes of EVENTS, beyond which the oldest go; empty is half of the store"},
	{"store-dead-letters", "store.deadLetters", "bytes of DEAD_LETTERS, beyond which the oldest go; empty is a twentieth of the store"},
	{"http", "http.listen", "address of API and page of documents"},
	{"http-hosts", "http.hosts", "names, with commas between them, under which a server without tokens is asked, besides loopback ones, addresses, and beyond loopback that of the machine; * is any"},
	{"require-if-match", "http.requireIfMatch", "machines, with commas between them, whose commands are refused without If-Match unless they begin a life"},
	{"http-header-timeout", "http.headerTimeout", "how long a client may take to send the headers of a request"},
	{"http-body-timeout", "http.bodyTimeout", "how long it may take for the rest"},
	{"http-write-timeout", "http.writeTimeout", "how long it may take for each 64 KiB of an answer"},
	{"http-idle-timeout", "http.idleTimeout", "how long a connection is kept between two requests"},
	{"http-cert", "http.tls.cert", "certificate file of the HTTP listener"},
	{"http-key", "http.tls.key", "key file of the HTTP listener"},
	{"nats", "nats.listen", "address of the embedded NATS server for clients, of whom it takes nats.users only (dev: everybody); empty listens nowhere"},
	{"nats-url", "nats.url", "use this NATS server instead of the embedded one"},
	{"nats-context", "nats.context", "name of a context of the nats CLI: use its server, with its credentials, instead of the embedded one"},
	{"write-nats-context", "nats.writeContext", "name of a context of the nats CLI that is written at the start and leads to the embedded server; empty writes none"},
	{"nats-creds", "nats.creds", "credentials file for --nats-url"},
	{"nats-ca", "nats.tls.ca", "file of the certificate authority for --nats-url"},
	{"nats-cert", "nats.tls.cert", "certificate file: the client's with --nats-url, the listener's without"},
	{"nats-key", "nats.tls.key", "key file of --nats-cert"},
	{"nats-prefix", "nats.prefix", "first token of all subjects"},
	{"nats-replicas", "nats.replicas", "replicas of streams that are created: 1, or 3 with --nats-url"},
	{"node", "node", "name of this node, kept with the data; empty keeps the one that is there, or makes one up"},
	{"cluster", "cluster.name", "name of the cluster that the embedded NATS server is a member of; empty is a single server"},
	{"cluster-listen", "cluster.listen", "address for the other members of the cluster"},
	{"cluster-routes", "cluster.routes", "nats://host:port of the members of the cluster, with commas between them"},
	{"cluster-user", "cluster.user", "what members of the cluster ask of each other"},
	{"cluster-password", "cluster.password", "likewise; better in the environment, where other users of the machine do not see it"},
	{"cluster-ca", "cluster.tls.ca", "file of the authority that members of the cluster are checked against"},
	{"cluster-cert", "cluster.tls.cert", "certificate file of this member"},
	{"cluster-key", "cluster.tls.key", "its key file"},
	{"replicas", "cluster.replicas", "replicas of every stream in a cluster: 3, or 5 with as many members"},
	{"gateway", "gateway", "what runs services: process, knative, simulated, or external: workers of your own"},
	{"process-host", "gateways.process.host", "IP address of the public sockets of services"},
	{"kubeconfig", "gateways.knative.kubeconfig", "file that names the cluster of the gateway knative; empty is the pod's account, or what kubectl takes"},
	{"kube-context", "gateways.knative.context", "context of the kubeconfig; empty is its current one"},
	{"kube-namespace", "gateways.knative.namespace", "namespace of the cluster for all services; empty is the one of the same name"},
	{"kube-owner", "gateways.knative.owner", "label that tells the objects of this installation from those of others"},
	{"idempotency-window", "idempotencyWindow", "how long the answer to a command is kept under the key of its sender"},
	{"observe-every", "observe.every", "time between looks at the world"},
	{"ready-stale", "observe.readyStale", "how long a stable READY is believed without looking"},
	{"effect-concurrency", "effects.concurrency", "effects of one kind that are performed at once"},
	{"ended-for", "index.endedFor", "how long lists and counts show what has ended; 0s is for ever"},
	{"outbox-dsn", "outbox.dsn", "Postgres whose outbox is relayed, as a URL; more of them in the file"},
	{"postgres", "outbox.postgres", "auto runs a private Postgres below the data directory when no other is named; off does not"},
	{"dns", "discovery.dns", "address of the name server for instances; empty has none"},
	{"dns-domain", "discovery.dnsDomain", "domain of the names that it serves"},
	{"dns-ttl", "discovery.dnsTTL", "how long its answers may be cached, in whole seconds up to 1h; 0s is not at all"},
	{"xds", "discovery.xds", "address of the endpoint discovery service for Envoy; empty has none"},
	{"xds-ca", "discovery.xdsTLS.ca", "file of the authority that clients of --xds are checked against"},
	{"xds-cert", "discovery.xdsTLS.cert", "certificate file of --xds"},
	{"xds-key", "discovery.xdsTLS.key", "its key file"},
	{"discovery-namespaces", "discovery.namespaces", "namespaces that --dns and --xds show, with commas between them; * is all, and so is none on loopback"},
	{"probe-any-request", "discovery.probe.anyRequest", "let checks send any method, headers and bodies"},
	{"probe-match", "discovery.probe.match", "let checks look for an expression in what is answered"},
	{"scripts", "discovery.scripts", "let checks of the type script run programs on this machine"},
	{"max-connections", "limits.connections", "HTTP connections at once; 0, or more than three quarters of the open-file limit, is three quarters of it"},
	{"max-connections-per-client", "limits.connectionsPerClient", "of these, those of one address; more where a proxy stands before the server; 0 is no limit"},
	{"max-watches", "limits.watches", "watches and blocking reads at once; 0 is no limit"},
	{"max-watches-per-client", "limits.watchesPerClient", "of these, those of one token, or without tokens of one address"},
	{"max-waits", "limits.waits", "requests at once that wait for an entity to settle, an operation, or a revision; 0 is no limit"},
	{"max-waits-per-client", "limits.waitsPerClient", "of these, those of one client"},
	{"max-commands", "limits.commands", "commands at once that wait for their turn or for their answer; 0 is no limit"},
	{"max-commands-per-client", "limits.commandsPerClient", "of these, those of one client"},
	{"commands-at-once", "limits.commandsAtOnce", "of these, those that are with the engine, where clients take turns; 0 is all of them, without turns"},
	{"max-questions", "limits.questions", "requests over NATS, and reads of storage over HTTP, at once that wait for their turn or are under way; 0 is no limit"},
	{"max-questions-per-client", "limits.questionsPerClient", "of these, those of one client"},
	{"rate", "limits.rate", "requests a second of one client, over HTTP and NATS; 0 is no limit"},
	{"burst", "limits.burst", "of these, at once after a silence; 0 is as many as in a second"},
	{"max-entities-per-namespace", "limits.entitiesPerNamespace", "entities that live in one namespace; 0 is no limit"},
	{"log-level", "log.level", "debug, info, warn or error"},
	{"log-format", "log.format", "text or json"},
	{"insecure", "insecure", "listen beyond loopback without tokens and TLS, and take everybody at the NATS listener when it has no users"},
	{"stop-services", "stopServices", "stop the services, too, when the server stops"},
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
