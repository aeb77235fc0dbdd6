package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/bcc94042/instar/machines"
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
	if k.Namespace != "" && !machines.IsLabel(k.Namespace) {
		errs = append(errs, fmt.Errorf("gateways.knative.namespace: %q is no DNS label", k.Namespace))
	}
	if !machines.IsLabel(k.Owner) {
		errs = append(errs, fmt.Errorf("gateways.knative.owner: %q is no DNS label", k.Owner))
	}
	if slices.Contains(k.Images, "") {
		errs = append(errs, errors.New("gateways.knative.images: an empty text would take any image; leave the list empty if that is meant"))
	}
	return errors.Join(errs...)
}
