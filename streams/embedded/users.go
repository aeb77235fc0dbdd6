package embedded

// The users of the listener: their roles, and which lists of subjects a user may have instead of one. The configuration is checked by User.Check, and accountOf (accounts.go) makes accounts of what has passed.

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/streams"
)

// The roles of a [User]. RoleRead, RoleOperate and RoleAdmin are what a token of that role may over HTTP.
const (
	RoleRead    = "read"    // watches events, asks, and reads the copies of events and values
	RoleOperate = "operate" // asks and sends commands that are not for admins; watches events
	RoleWork    = "work"    // performs effects, and sends any command and report
	RoleResolve = "resolve" // reads where tenants are, with sealed credentials, and says which epochs it has seen: what package client/tenantdb needs, and nothing else
	RoleProvide = "provide" // answers what a provider of instances is asked, which has secrets of tenants, and says that it is there, and nothing else
	RoleAdmin   = "admin"   // everything
)

// Roles are all of them.
var Roles = []string{RoleRead, RoleOperate, RoleWork, RoleResolve, RoleProvide, RoleAdmin}

// User may connect to the listener. It has a role, or instead of one both lists: what it may send to the control plane, and
// what it hears of it.
type User struct {
	Name      string   `koanf:"name"`
	Password  string   `koanf:"password"` // plain or bcrypt
	Role      string   `koanf:"role"`
	Publish   []string `koanf:"publish"`
	Subscribe []string `koanf:"subscribe"`

	// Requests a second to the micro service, instead of that of all clients, which 0 is; and how many of these at once after a silence, where
	// 0 is as many as in a second. The control plane counts them: the server itself does not.
	Rate  int `koanf:"rate"`
	Burst int `koanf:"burst"`
}

// Account is the name of the account that a user who is not RoleAdmin is in. The server tells it, with the name, of each request to the
// micro service.
func (u User) Account() string {
	switch u.Role {
	case RoleRead:
		return readersAccount
	case RoleProvide:
		return providersAccount
	}
	return "USER_" + u.Name
}

// CheckRate says what is wrong with a rate of one client, or nil.
func CheckRate(perSecond, burst int) error {
	switch {
	case perSecond < 0 || burst < 0:
		return fmt.Errorf("rate and burst must not be negative; a rate of 0 is limits.rate")
	case burst > 0 && perSecond == 0:
		return fmt.Errorf("burst is for rate, which is not set")
	}
	return nil
}

var userName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// Check says what is wrong with a user, or nil. A subject that would give the rights of the control plane is refused: who is
// to have them has RoleAdmin. What is sent to $JS.API is imported as $JS.INSTAR.API.
func (u User) Check(names streams.Names) error {
	switch lists := len(u.Publish) + len(u.Subscribe); {
	case !userName.MatchString(u.Name) || u.Password == "":
		return fmt.Errorf("needs a name of letters, digits, - and _, and a password")
	case u.Role != "" && lists > 0:
		return fmt.Errorf("has a role and lists of subjects: leave out one of the two")
	case u.Role != "" && !slices.Contains(Roles, u.Role):
		return fmt.Errorf("role: %q is none of %s", u.Role, strings.Join(Roles, ", "))
	case u.Role == "" && lists == 0:
		return fmt.Errorf("needs a role, or publish and subscribe")
	case u.Role == "" && len(u.Publish) == 0:
		return fmt.Errorf("has subscribe without publish, and an empty list is everything to NATS: name what it may publish to, too")
	case u.Role == RoleAdmin && u.Rate > 0:
		return fmt.Errorf("has a rate, but clients of the role admin are told apart by their connections, and not by their user: leave it out")
	case u.Role == "" && len(u.Subscribe) == 0:
		return fmt.Errorf("has publish without subscribe, and an empty list is everything to NATS: name what it may subscribe to, too")
	}
	if err := CheckRate(u.Rate, u.Burst); err != nil {
		return err
	}
	for _, s := range u.Publish {
		if why := sendable(names, s); why != "" {
			return fmt.Errorf("publish: %q %s", s, why)
		}
	}
	for _, s := range u.Subscribe {
		if why := audible(s); why != "" {
			return fmt.Errorf("subscribe: %q %s", s, why)
		}
	}
	return nil
}

func malformed(subject string) string {
	first, _, _ := strings.Cut(subject, ".")
	switch {
	case !server.IsValidSubject(subject) || strings.ContainsAny(subject, `"\{}`):
		return "is no subject"
	case first == ">" || first == "*":
		return "is everything: who may that has the role admin"
	case strings.HasPrefix(first, "_"):
		return "is of inboxes, which are everybody's own"
	}
	return ""
}

// harmless is what may be asked of JetStream: it reads, and answers JSON or what a consumer is for. A consumer delivers
// where its creator says, with the rights of the control plane; so does a stream that is made with sources, or tells of its messages.
var harmless = []string{
	"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*",
	"$JS.API.CONSUMER.NAMES.*", "$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.ACK.*.>", "$SRV.>",
}

// sendable says why a user must not publish to a subject, or nothing.
func sendable(n streams.Names, subject string) string {
	if why := malformed(subject); why != "" {
		return why
	}
	within := func(filters ...string) bool {
		return slices.ContainsFunc(filters, func(f string) bool { return server.SubjectMatchesFilter(subject, f) })
	}
	commands := n.Stream(streams.CommandStream)
	switch {
	case server.SubjectsCollide(subject, "$JS.API.CONSUMER.MSG.NEXT."+commands+".>"), server.SubjectsCollide(subject, "$JS.ACK."+commands+".>"):
		return "takes commands away from the control plane"
	case strings.HasPrefix(subject, "$") && !within(harmless...):
		return "gives the rights of the control plane: who may that has the role admin"
	case server.SubjectsCollide(subject, n.All()) && !within(n.API(">"), n.Under("cmd"), n.Under("hb"), n.Under("ack"), n.Under("seen"), n.Under("log"), n.Under("worker")):
		return "is written by the control plane only"
	}
	return ""
}

// audible says why a user must not subscribe to a subject, or nothing.
func audible(subject string) string {
	if why := malformed(subject); why != "" {
		return why
	}
	if strings.HasPrefix(subject, "$") && !server.SubjectMatchesFilter(subject, "$KV.>") && !server.SubjectMatchesFilter(subject, "$JS.EVENT.>") {
		return "is for the control plane"
	}
	return ""
}
