package knativetest

import "fmt"

// Kubeconfig is one for a server without credentials, with the one context "test".
func Kubeconfig(url string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q}}]
users: [{name: test, user: {}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
`, url)
}
