package knative_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/knative"
	"github.com/bcc94042/instar/providers/knative/knativetest"
)

func TestOpenRefuses(t *testing.T) { // not parallel: it reads the environment
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	good := kubeconfig(t, knativetest.Kubeconfig("http://127.0.0.1:1"))
	for name, c := range map[string]struct {
		config knative.Config
		says   string
	}{
		"AMissingFile":      {knative.Config{Kubeconfig: "/no/such/file"}, "cannot read the kubeconfig /no/such/file: stat /no/such/file: no such file"},
		"NoFileAtAll":       {knative.Config{}, "no cluster is configured in "},
		"AFileThatIsNone":   {knative.Config{Kubeconfig: kubeconfig(t, "{]")}, "cannot read the kubeconfig"},
		"AnEmptyFile":       {knative.Config{Kubeconfig: kubeconfig(t, "")}, "name a kubeconfig that has a current context"},
		"AnUnknownContext":  {knative.Config{Kubeconfig: good, Context: "prod"}, `context "prod" does not exist`},
		"AServerThatIsNone": {knative.Config{Kubeconfig: kubeconfig(t, knativetest.Kubeconfig("://"))}, "cannot be used"},
		"ANamespace":        {knative.Config{Kubeconfig: good, Namespace: "Apps"}, `namespace "Apps" is no DNS label`},
		"AnOwner":           {knative.Config{Kubeconfig: good, Owner: "a b"}, `owner "a b"`},
		"AnEmptyImage":      {knative.Config{Kubeconfig: good, Images: []string{""}}, "would take any"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := knative.Open(c.config)
			require.ErrorContains(t, err, c.says)
		})
	}
	t.Setenv("KUBECONFIG", good)
	_, err := knative.Open(knative.Config{})
	require.NoError(t, err, "a server that is down keeps nobody from starting")
	t.Setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
	_, err = knative.Open(knative.Config{})
	require.ErrorContains(t, err, "cannot read the account of this pod")
	_, err = knative.Open(knative.Config{Kubeconfig: good})
	require.NoError(t, err)
}

func TestImages(t *testing.T) {
	t.Parallel()
	any, some := setup(t, nil), setup(t, func(c *knative.Config) { c.Images = []string{"ghcr.io/acme", "quay.io/", "web:1"} })
	for image, want := range map[string][2]bool{
		"ghcr.io/acme/web:1":   {true, true},
		"ghcr.io/acme":         {true, true},
		"ghcr.io/acme:2":       {true, true},
		"ghcr.io/acme-evil:1":  {true, false},
		"quay.io/other/web":    {true, true},
		"web:1":                {true, true},
		"web:12":               {true, false},
		"localhost:5000/web":   {true, false},
		"../../bin/sh":         {false, false},
		"Web":                  {false, false},
		"web:":                 {false, false},
		"https://ghcr.io/acme": {false, false},
	} {
		for i, b := range []*bench{any, some} {
			req := asking(1, service.Spec{Image: image})
			req.Name = "one"
			_, err := b.Apply(t.Context(), req)
			require.Equal(t, want[i], err == nil, "%s: %v", image, err)
			require.Equal(t, want[i], !providers.IsInvalid(err), image)
		}
	}
	require.Equal(t, []string{"ghcr.io/acme", "quay.io/", "web:1"}, some.Capabilities().Images)
}

func TestNamesAreLabels(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	for _, name := range []string{"", "a/b", "A", "..", "a?x=y"} {
		req := asking(1, image("web:1"))
		req.Name = name
		_, err := b.Apply(t.Context(), req)
		require.True(t, providers.IsInvalid(err), name)
		_, err = b.Observe(t.Context(), providers.ObserveRequest{Request: req.Request})
		require.True(t, providers.IsInvalid(err), name)
	}
	require.Empty(t, b.cluster.Calls())
}

type rule struct{ APIGroups, Resources, Verbs []string }

// The role of a manifest is what the gateway does, and nothing else.
func TestTheRolesOfTheManifests(t *testing.T) {
	t.Parallel()
	for file, want := range map[string][]rule{
		"knative-rbac.yaml": {{[]string{"serving.knative.dev"}, []string{"services"}, []string{"get", "list", "watch", "create", "patch", "delete"}}},
		"knative-tenants-rbac.yaml": {
			{[]string{""}, []string{"secrets"}, []string{"get", "create", "patch", "delete"}},
			{[]string{"serving.knative.dev"}, []string{"services/finalizers"}, []string{"update"}},
		},
	} {
		text, err := os.ReadFile("../../deploy/" + file)
		require.NoError(t, err)
		var rules []rule
		for _, part := range strings.Split(string(text), "\n---\n") {
			var doc struct {
				Kind  string
				Rules []rule
			}
			require.NoError(t, yaml.Unmarshal([]byte(part), &doc))
			require.Contains(t, []string{"ServiceAccount", "Role", "RoleBinding"}, doc.Kind)
			rules = append(rules, doc.Rules...)
		}
		require.Equal(t, want, rules, file)
	}
}
