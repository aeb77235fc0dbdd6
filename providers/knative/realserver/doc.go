// Package realserver runs the gateway knative against a real Kubernetes API server: that of apiextensions-apiserver, with
// an etcd in the same process. It is what fields of several managers, conditions of writes, generations, the status
// subresource, propagation and watches are checked by; what is not there is Knative's own controller and its webhooks,
// which the test plays ([knativetest.Controller]).
//
// It is a module of its own because the API server is a thousand packages that the program does not need. `make
// test-kubernetes` runs it; the first time it is built for some minutes.
package realserver
