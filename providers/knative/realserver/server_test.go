package realserver

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apiextensions-apiserver/test/integration/fixtures"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/knative"
	"github.com/bcc94042/instar/providers/knative/knativetest"
)

type object = knativetest.Object

const (
	awhile = 30 * time.Second
	tick   = 20 * time.Millisecond
)

var resource = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}

// cluster is the one API server of all tests; each has a namespace of its own.
type cluster struct {
	client     dynamic.Interface
	kubeconfig string
}

// TestRealServer starts the API server once, and everything else within.
func TestRealServer(t *testing.T) {
	etcd := testserver.RunEtcd(t, nil)
	stop, config, _, err := fixtures.StartDefaultServer(t, "--etcd-servers", etcd.Endpoints()[0])
	require.NoError(t, err)
	t.Cleanup(stop)
	c := &cluster{kubeconfig: kubeconfig(t, config)}
	c.client, err = dynamic.NewForConfig(config)
	require.NoError(t, err)
	c.without(t)
	c.install(t, config)
	t.Run("all", func(t *testing.T) { // ends before the server does
		for name, test := range map[string]func(*testing.T, *cluster){
			"Contract":                         contract,
			"TheSituationsOfARealController":   situations,
			"AnObjectThatComesMeanwhileIsSeen": meanwhile,
			"ChangesByHandAreMended":           changedByHand,
			"FieldsOfOthersStay":               fieldsOfOthers,
			"WhatIsNoLongerWantedGoes":         withdrawn,
			"TheWatchTells":                    watchTells,
			"ARefusalCarriesTheServersWords":   refused,
		} {
			t.Run(name, func(t *testing.T) { t.Parallel(); test(t, c) })
		}
	})
}

// without Knative the API server says 404, too, which must not be taken for the absence of one service.
func (c *cluster) without(t *testing.T) {
	t.Helper()
	s, req := c.space(t), asking(1, service.Spec{Image: "registry.test/web:1"})
	_, applied := s.Apply(t.Context(), req)
	_, observed := s.Observe(t.Context(), providers.ObserveRequest{Request: req.Request})
	for _, err := range []error{applied, observed, s.Delete(t.Context(), providers.DeleteRequest{Request: req.Request})} {
		require.True(t, providers.IsUnavailable(err), "%v", err)
		require.ErrorContains(t, err, "is Knative Serving installed?")
	}
}

// install makes the resource, with the part of Knative's schema that decides who owns what: containers are one value,
// variables are a map by name, annotations are a map.
func (c *cluster) install(t *testing.T, config *rest.Config) {
	t.Helper()
	raw, err := os.ReadFile("crd.yaml")
	require.NoError(t, err)
	crd := new(apiextensions.CustomResourceDefinition)
	require.NoError(t, yaml.UnmarshalStrict(raw, crd))
	client, err := clientset.NewForConfig(config)
	require.NoError(t, err)
	_, err = fixtures.CreateNewV1CustomResourceDefinition(crd, client, c.client)
	require.NoError(t, err)
}

// kubeconfig holds the credentials of the server's own loopback client.
func kubeconfig(t *testing.T, config *rest.Config) string {
	t.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q, tls-server-name: %q, certificate-authority-data: %q}}]
users: [{name: test, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
`, config.Host, config.ServerName, base64.StdEncoding.EncodeToString(config.CAData), config.BearerToken)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// space is a gateway to a namespace that no other test has.
type space struct {
	*knative.Gateway
	t       *testing.T
	objects dynamic.ResourceInterface
}

func (c *cluster) space(t *testing.T) *space {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	if len(name) > 55 {
		name = name[len(name)-55:]
	}
	name = "t" + strings.Trim(name, "-")
	g, err := knative.Open(knative.Config{
		Kubeconfig: c.kubeconfig, Namespace: name, Images: []string{"registry.test"}, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	require.NoError(t, err)
	return &space{Gateway: g, t: t, objects: c.client.Resource(resource).Namespace(name)}
}

// play is the controller until the test ends.
func (s *space) play() {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		controller := &knativetest.Controller{}
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-s.t.Context().Done():
				return
			case <-ticker.C:
				s.step(controller)
			}
		}
	}()
	s.t.Cleanup(func() { <-ended })
}

// step is one step with every object; conflicts are for the next one.
func (s *space) step(controller *knativetest.Controller) {
	ctx := context.WithoutCancel(s.t.Context())
	list, err := s.objects.List(ctx, metav1.ListOptions{})
	if err != nil {
		s.t.Error(err)
		return
	}
	for _, u := range list.Items {
		if u.GetDeletionTimestamp() != nil {
			err = s.collect(ctx, &u)
		} else {
			u.Object["status"] = controller.Next(u.Object)
			_, err = s.objects.UpdateStatus(ctx, &u, metav1.UpdateOptions{FieldManager: "controller"})
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			s.t.Error(err)
		}
	}
}

// collect is the garbage collector: nothing belongs to the object any more.
func (s *space) collect(ctx context.Context, u *unstructured.Unstructured) error {
	u.SetFinalizers(nil)
	_, err := s.objects.Update(ctx, u, metav1.UpdateOptions{FieldManager: "collector"})
	return err
}

func (s *space) get() *unstructured.Unstructured {
	s.t.Helper()
	u, err := s.objects.Get(s.t.Context(), "web", metav1.GetOptions{})
	require.NoError(s.t, err)
	return u
}

// edit is what kubectl edit does.
func (s *space) edit(f func(o object)) {
	s.t.Helper()
	u := s.get()
	f(u.Object)
	_, err := s.objects.Update(s.t.Context(), u, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
	require.NoError(s.t, err)
}
