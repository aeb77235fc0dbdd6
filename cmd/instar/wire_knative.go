package main

import (
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/bcc94042/instar/providers/knative"
)

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
