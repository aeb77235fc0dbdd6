package embedded

// NATS accounts for the users of the embedded server. accountOf says what each role may send and hear; Accounts writes all accounts as a block of a server's configuration, with
// the exports and imports between them and the control plane; guard, called by options (server.go), has nats-server parse that block and puts the accounts, the users and the
// program's own user into the options.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/streams"
)

// readersAccount is where users of RoleRead live, with JetStream and copies of what they may read (see [streams.Copies]).
const readersAccount = "READERS"

// providersAccount is where users of RoleProvide live, who answer what the control plane asks there. It can ask in one account only: two that answer the same would both be asked.
const providersAccount = "PROVIDERS"

// account is that of one user, or that of all of a role. What is sent reaches the control plane by service imports, in which the server replaces the reply subject by one of its
// own: a reply subject of the sender's choice leads only to what is in the sender's account, and that it may publish anyway. What is heard comes by stream imports.
type account struct {
	name       string
	send, hear []string
	serve      []string // what it answers that the control plane asks, which imports it: an answer leads to who has asked, and nowhere else
	users      []User
}

// readers reports whether the account has JetStream and copies.
func (a *account) readers() bool { return a.name == readersAccount }

// accountOf returns the account of a user; nil is the control plane's.
func accountOf(u User, n streams.Names) *account {
	ask := []string{n.API("get", ">"), n.API("list", ">"), n.API("discover", ">"), "$SRV.>"}
	a := &account{name: u.Account(), send: ask, hear: []string{n.Under("evt"), n.Under("live")}, users: []User{u}}
	switch u.Role {
	case RoleAdmin:
		return nil
	case RoleRead:
		a.send, a.hear = append(ask, streams.CopyFlow, streams.CopyReset), append(a.hear, n.Under("hb"), n.Copy(">"))
	case RoleOperate:
		a.send = append(ask, n.API("cmd", ">"), n.Under("hb"), n.Under("ack"))
	case RoleWork:
		effects := n.Stream(streams.EffectStream)
		a.send = append(ask, n.Under("cmd"), n.Under("log"), n.Under("worker"), "$JS.API.CONSUMER.INFO."+effects+".*", "$JS.API.CONSUMER.MSG.NEXT."+effects+".*", "$JS.ACK."+effects+".>")
	case RoleResolve:
		routes := streams.BucketStream(n.Bucket(streams.RoutesBucket))
		a.send, a.hear = []string{"$JS.API.STREAM.INFO." + routes, "$JS.API.STREAM.MSG.GET." + routes, n.Seen("*", "*")}, []string{n.Moved("*")}
	case RoleProvide:
		a.send, a.hear, a.serve = []string{n.Worker("provider-instance")}, nil, []string{n.Provider("instance", "*")}
	default:
		a.send, a.hear = u.Publish, u.Subscribe
	}
	return a
}

// readerPermissions are what a user of the readers' account may publish there. They prevent mistakes, not attacks; against those it helps that everything there is only a copy.
func readerPermissions(n streams.Names) string {
	publish := []string{
		"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*", "$JS.API.DIRECT.GET.>",
		"$JS.API.CONSUMER.CREATE.>", "$JS.API.CONSUMER.DELETE.*.*", "$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.NAMES.*", "$JS.API.CONSUMER.LIST.*",
		"$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.ACK.>", "$JS.FC.>", n.API("get", ">"), n.API("list", ">"), n.API("discover", ">"), "$SRV.>",
	}
	for i, s := range publish {
		publish[i] = strconv.Quote(s)
	}
	return ", permissions: { publish: [" + strings.Join(publish, ", ") + `], subscribe: [">"] }`
}

// Accounts is the block accounts of a server's configuration: the one of the control plane, by its name, and those of the users. The
// passwords are as the function writes them.
func Accounts(control string, names streams.Names, users []User, password func(User) string) string {
	own, others := &account{name: control}, []*account(nil)
	for _, u := range users {
		a := accountOf(u, names)
		if a == nil {
			own.users = append(own.users, u)
		} else if i := slices.IndexFunc(others, func(o *account) bool { return o.name == a.name }); i >= 0 {
			others[i].users = append(others[i].users, u)
		} else {
			others = append(others, a)
		}
	}
	services, heard := map[string][]string{}, map[string][]string{}
	var imports []string
	for _, a := range others {
		for _, s := range a.send {
			services[s] = append(services[s], a.name)
		}
		for _, s := range a.hear {
			heard[s] = append(heard[s], a.name)
		}
		if a.readers() {
			imports = append(imports, imported("service", a.name, "$JS.API.>", streams.ReadersAPI+".>"))
		}
		for _, s := range a.serve {
			imports = append(imports, imported("service", a.name, s, ""))
		}
	}
	var b strings.Builder
	b.WriteString("accounts {\n")
	own.write(&b, "    jetstream: enabled\n", "", password, append(exports("service", services), exports("stream", heard)...), imports)
	for _, a := range others {
		a.writeFor(&b, control, names, password)
	}
	b.WriteString("}\n")
	return b.String()
}

// writeFor writes the account of users.
func (a *account) writeFor(b *strings.Builder, control string, names streams.Names, password func(User) string) {
	var imports []string
	for _, s := range a.send {
		local := ""
		if verb, ok := strings.CutPrefix(s, "$JS.API."); ok { // which every account has of its own
			local = streams.OriginAPI + "." + verb
		}
		one := imported("service", control, s, local)
		if strings.Contains(s, ".api.") { // the server passes on who asks, so that clients of one account have shares of their own
			one = strings.TrimSuffix(one, " }") + ", share: true }"
		}
		imports = append(imports, one)
	}
	for _, s := range a.hear {
		imports = append(imports, imported("stream", control, s, ""))
	}
	if a.readers() {
		a.write(b, "    jetstream: { max_streams: 64, max_consumers: 4096 }\n", readerPermissions(names), password, exports("service", map[string][]string{"$JS.API.>": {control}}), imports)
		return
	}
	served := map[string][]string{}
	for _, s := range a.serve {
		served[s] = []string{control}
	}
	a.write(b, "", "", password, exports("service", served), imports)
}

func (a *account) write(b *strings.Builder, jetstream, permissions string, password func(User) string, exports, imports []string) {
	fmt.Fprintf(b, "  %s {\n%s    users: [\n", a.name, jetstream)
	for _, u := range a.users {
		fmt.Fprintf(b, "      { user: %q, password: %s%s }\n", u.Name, password(u), permissions)
	}
	b.WriteString("    ]\n")
	for _, part := range []struct {
		name  string
		lines []string
	}{{"exports", exports}, {"imports", imports}} {
		if len(part.lines) > 0 {
			fmt.Fprintf(b, "    %s: [\n      %s\n    ]\n", part.name, strings.Join(part.lines, "\n      "))
		}
	}
	b.WriteString("  }\n")
}

// exports let only the named accounts import each subject. A service with several responders, or several responses, has response type stream.
func exports(kind string, subjects map[string][]string) []string {
	var lines []string
	for _, s := range slices.Sorted(maps.Keys(subjects)) {
		many := ""
		if kind == "service" && (strings.HasPrefix(s, "$SRV.") || strings.HasPrefix(s, "$JS.API.CONSUMER.MSG.NEXT.") || s == "$JS.API.>") {
			many = ", response_type: stream"
		}
		lines = append(lines, fmt.Sprintf("{ %s: %q%s, accounts: [%s] }", kind, s, many, strings.Join(subjects[s], ", ")))
	}
	return lines
}

func imported(kind, from, subject, local string) string {
	if local != "" {
		local = fmt.Sprintf(", to: %q", local)
	}
	return fmt.Sprintf("{ %s: { account: %s, subject: %q }%s }", kind, from, subject, local)
}

// guard makes the listener refuse everybody but the program itself and the users.
func (s *Server) guard(opts *server.Options) error {
	if s.user == "" {
		return nil
	}
	parsed := &server.Options{}
	if err := parsed.ProcessConfigString(Accounts("INSTAR", s.o.Names, s.o.Users, func(User) string { return "set-below" })); err != nil {
		return fmt.Errorf("streams: cannot make the accounts of the users: %w", err)
	}
	own := &server.User{Username: s.user, Password: s.password}
	opts.Accounts, opts.Users = parsed.Accounts, append(parsed.Users, own)
	for _, a := range opts.Accounts {
		if a.Name == "INSTAR" { // the account of a server without users, so that the streams are the same with and without them
			a.Name, own.Account = server.DEFAULT_GLOBAL_ACCOUNT, a
		}
	}
	for _, u := range opts.Users {
		if i := slices.IndexFunc(s.o.Users, func(o User) bool { return o.Name == u.Username }); i >= 0 {
			u.Password = s.o.Users[i].Password
		}
	}
	return nil
}
