package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/bcc94042/instar/providers/knative"
)

// GatewayKnative runs services in a cluster.
const GatewayKnative = "knative"

// Knative is the gateway that runs services as Knative Services of a Kubernetes cluster.
type Knative struct {
	Kubeconfig string   `koanf:"kubeconfig"`
	Context    string   `koanf:"context"`
	Namespace  string   `koanf:"namespace"`
	Owner      string   `koanf:"owner"`
	Images     []string `koanf:"images"`
}

func (k Knative) validate() error {
	errs := []error{readable("gateways.knative.kubeconfig", k.Kubeconfig)}
	if k.Namespace != "" && !label.MatchString(k.Namespace) {
		errs = append(errs, fmt.Errorf("gateways.knative.namespace: %q is no DNS label", k.Namespace))
	}
	if !label.MatchString(k.Owner) {
		errs = append(errs, fmt.Errorf("gateways.knative.owner: %q is no DNS label", k.Owner))
	}
	if slices.Contains(k.Images, "") {
		errs = append(errs, errors.New("gateways.knative.images: an empty text would take any image; leave the list empty if that is meant"))
	}
	return errors.Join(errs...)
}

// clientLog is where the Kubernetes client writes to: one place per process.
var clientLog sync.Once

// openKnative reads the configuration of the cluster. Whether its API server is up shows with the first effect.
func (a *app) openKnative() (*knative.Gateway, error) {
	clientLog.Do(func() { klog.SetSlogLogger(a.log.With("part", "kubernetes client")) })
	k := a.cfg.Gateways.Knative
	gateway, err := knative.Open(knative.Config{Kubeconfig: k.Kubeconfig, Context: k.Context, Namespace: k.Namespace, Owner: k.Owner, Images: k.Images, Log: a.log})
	if err != nil {
		return nil, fmt.Errorf("cannot open the knative gateway: %w", err)
	}
	return gateway, nil
}
