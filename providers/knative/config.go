package knative

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/providers"
)

// Config is what [Open] needs; every field has a default.
type Config struct {
	Kubeconfig string        // file; in a pod its own account when empty, elsewhere $KUBECONFIG or ~/.kube/config
	Context    string        // of the kubeconfig; its current one when empty
	Namespace  string        // of the cluster, for all services; empty maps each namespace to that of the same name
	Owner      string        // label value that tells this installation's objects from those of others; instar when empty
	Images     []string      // the only images that are taken: registries, repositories or whole references; empty takes any
	Timeout    time.Duration // of one call; 10 s when 0
	Log        *slog.Logger
}

// clientLog is where the Kubernetes client writes to: one place per process.
var clientLog sync.Once

// LogClient has the Kubernetes client of this process write to a log. The first call counts.
func LogClient(log *slog.Logger) {
	clientLog.Do(func() { klog.SetSlogLogger(log.With("part", "kubernetes client")) })
}

// Open reads the configuration of the cluster. It fails when that cannot be read or makes no sense; the API server is
// not asked for anything yet, so that one that is down keeps nobody from starting.
func Open(c Config) (*Gateway, error) {
	c.Owner, c.Timeout = cmp.Or(c.Owner, "instar"), cmp.Or(c.Timeout, 10*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if !machines.IsLabel(c.Owner) || c.Namespace != "" && !machines.IsLabel(c.Namespace) {
		return nil, fmt.Errorf("knative: owner %q or namespace %q is no DNS label", c.Owner, c.Namespace)
	}
	if slices.Contains(c.Images, "") {
		return nil, errors.New("knative: an empty text among the images would take any")
	}
	where, err := c.cluster()
	if err != nil {
		return nil, err
	}
	where.UserAgent = "instar"
	where.QPS = -1 // the engine bounds what is done at once, and the API server has its own fairness
	where.Wrap(keepWait)
	client, err := dynamic.NewForConfig(where)
	if err != nil {
		return nil, fmt.Errorf("knative: the configuration of the cluster at %s cannot be used: %w", where.Host, err)
	}
	return &Gateway{config: c, host: where.Host, client: client, names: map[string]*name{}}, nil
}

// cluster says where the API server is, and with which credentials.
func (c *Config) cluster() (*rest.Config, error) {
	if c.Kubeconfig == "" && c.Context == "" && os.Getenv("KUBERNETES_SERVICE_HOST") != "" {
		where, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("knative: cannot read the account of this pod: %w", err)
		}
		return where, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.Kubeconfig
	file := cmp.Or(c.Kubeconfig, strings.Join(rules.Precedence, ", "))
	where, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: c.Context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, fmt.Errorf("knative: no cluster is configured in %s: name a kubeconfig that has a current context", file)
	}
	if err != nil {
		return nil, fmt.Errorf("knative: cannot read the kubeconfig %s: %w", file, err)
	}
	return where, nil
}

// reference is the form of an image's name.
var reference = regexp.MustCompile(`^([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?(:[0-9]+)?/)?` + // registry
	`[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*` + // repository
	`(:\w[\w.-]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`) // tag, digest

// CheckImage refuses what is no image, or none that is taken, with Invalid.
func (g *Gateway) CheckImage(image string) error { return g.config.checkImage(image) }

// checkImage refuses what is no image, or none that is taken.
func (c *Config) checkImage(image string) error {
	if !reference.MatchString(image) {
		return providers.Errorf(providers.Invalid, "image: %q is no name of a container image", image)
	}
	if len(c.Images) > 0 && !slices.ContainsFunc(c.Images, func(a string) bool { return within(image, a) }) {
		return providers.Errorf(providers.Invalid, "image: %q is none of %s", image, strings.Join(c.Images, ", "))
	}
	return nil
}

// within: the allowed text ends where a part of the image's name does, so that acme does not let acme-evil in.
func within(image, allowed string) bool {
	rest, ok := strings.CutPrefix(image, allowed)
	return ok && (rest == "" || strings.HasSuffix(allowed, "/") || strings.ContainsAny(rest[:1], "/:@"))
}
