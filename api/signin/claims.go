package signin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
)

// Rule says what people may do whose claim is, or has among others, a value.
type Rule struct {
	Claim     string    `json:"claim"` // "groups" when empty; realm_access.roles is one within another
	Value     string    `json:"value"`
	Role      auth.Role `json:"role"`
	Namespace string    `json:"namespace"` // "*" when empty
}

// claims are what an ID token says of a person.
type claims map[string]any

// values are the texts of a claim: one, or a list. A mail address that the provider has not verified could be anybody's, so it is none.
func (c claims) values(name string) []string {
	if name == "email" && c["email_verified"] != true {
		return nil
	}
	v, ok := c[name]
	if !ok { // one within another
		v = map[string]any(c)
		for part := range strings.SplitSeq(name, ".") {
			within, _ := v.(map[string]any)
			v = within[part]
		}
	}
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var list []string
		for _, one := range v {
			if s, ok := one.(string); ok {
				list = append(list, s)
			}
		}
		return list
	}
	return nil
}

// maxName is how long the name of a person may be, in bytes.
const maxName = 120

// person is whom claims are of. The name has "oidc:" before it, so that nobody is taken for a token; it is the subject where there is no other.
func (o *Options) person(c claims) (auth.Person, error) {
	subject, _ := c["sub"].(string)
	name := subject
	if v := c.values(cmp.Or(o.Name, "email")); len(v) == 1 && v[0] != "" {
		name = v[0]
	}
	if name == "" || len(name) > maxName || !problem.Printable(name) {
		return auth.Person{}, errors.New("the ID token has no printable name of up to 120 bytes")
	}
	for _, r := range o.Rules {
		if slices.Contains(c.values(cmp.Or(r.Claim, "groups")), r.Value) {
			return auth.Person{Name: "oidc:" + name, Role: r.Role, Namespace: cmp.Or(r.Namespace, auth.AnyNamespace)}, nil
		}
	}
	return auth.Person{}, fmt.Errorf("no row of auth.oidc.roles is for %s; the ID token has the claims %s", name, strings.Join(c.names(), ", "))
}

// names are the names of all claims; their values are not for the log.
func (c claims) names() []string {
	var list []string
	for name := range c {
		list = append(list, fmt.Sprintf("%.40s", name))
	}
	slices.Sort(list)
	return list[:min(len(list), 40)]
}
