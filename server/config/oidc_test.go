package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/auth"
)

func TestOIDC(t *testing.T) {
	t.Parallel()
	tokens := "auth:\n  tokens: [{name: ops, hash: 'sha256:" + strings.Repeat("0", 64) + "', role: admin}]\n"
	secret := writeFile(t, "secret", "s3cret")
	c, err := Load(Serve, flagSet(t, Serve, "--config", writeFile(t, "good.yaml", tokens+`  oidc:
    issuer: https://login.example.com/realms/main
    clientId: instar
    clientSecretFile: `+secret+`
    url: https://instar.example.com
    roles: [{value: admins, role: admin}, {claim: email, value: a@example.com, role: read, namespace: acme}]
`)), nil)
	require.NoError(t, err)
	o := c.Auth.OIDC.API()
	require.Equal(t, []string{"openid", "profile", "email"}, o.Scopes)
	require.Equal(t, "login.example.com", o.Host())
	require.Equal(t, auth.Admin, o.Rules[0].Role)
	require.NotContains(t, c.String(), "s3cret")
	require.Nil(t, Defaults(Serve).Auth.OIDC.API())

	for text, want := range map[string]string{
		"clientId: instar":                                                   "auth.oidc.issuer: is needed",
		"issuer: http://login.example.com":                                   "auth.oidc.issuer: needs an address with https",
		"issuer: https://x":                                                  "auth.oidc.clientId: is needed",
		"{issuer: https://x, clientId: a}":                                   "auth.oidc.clientSecretFile: is needed",
		"{issuer: https://x, clientSecretFile: /nowhere}":                    "auth.oidc.clientSecretFile: open /nowhere",
		"{issuer: https://x, url: http://i.example.com}":                     "auth.oidc.url: needs the address of this server",
		"{issuer: https://x, url: https://i.example.com/}":                   "nothing behind host and port",
		"{issuer: https://x, scopes: [email]}":                               "auth.oidc.scopes: need openid",
		"{issuer: https://x, url: https://i}":                                "auth.oidc.roles: need a row",
		"{issuer: https://x, roles: [{role: admin}]}":                        "auth.oidc.roles[0].value: is needed",
		"{issuer: https://x, roles: [{value: a, role: root, namespace: A}]}": "auth.oidc.roles[0].namespace",
		"{issuer: https://x, roles: [{value: a, role: root}]}":               `auth.oidc.roles[0].role: "root" is none of`,
	} {
		if !strings.HasPrefix(text, "{") {
			text = "{" + text + "}"
		}
		_, err := Load(Serve, flagSet(t, Serve, "--config", writeFile(t, "bad.yaml", tokens+"  oidc: "+text+"\n")), nil)
		require.ErrorContains(t, err, want, text)
	}
	_, err = Load(Dev, flagSet(t, Dev, "--config", writeFile(t, "open.yaml", "auth: {oidc: {issuer: https://x}}\n")), nil)
	require.ErrorContains(t, err, "needs auth.tokens, too")
}
