package streams

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var long = strings.Repeat("x", 63)

// strange are tokens that belong in no subject.
var strange = []string{
	"", "*", ">", "a*", "a>b", " ", "a b", "\t", "\r\n", "a\x00b", "a.b", ".", "é", "名", "a\u200bb", "\xff", long + "x", strings.Repeat("a", 5000),
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	own := Names{Prefix: "acme"}
	for want, got := range map[string]string{
		"instar.cmd.service.default.web.create":   Names{}.Command("service", "default.web", "create"),
		"instar.in.13.service.default.web.create": Names{}.Stored("service", "default.web", "create"),
		"instar.in.7.>": Names{}.StoredIn(7),
		"instar.evt.service.default.web.service.ready":     Names{}.Event("service", "default.web", "service.ready"),
		"instar.evt.service.default.web.>":                 Names{}.EventsOf("service", "default.web"),
		"instar.fx.service.apply.default.web":              Names{}.Effect("service", "apply", "default.web"),
		"instar.fx.service.apply.>":                        Names{}.Effects("service", "apply"),
		"instar.timer.service.default.web.deadline":        Names{}.Timer("service", "default.web", "deadline"),
		"instar.dead.p12.service.default.web":              Names{}.Dead("p12", "service", "default.web"),
		"instar.api.get.service":                           Names{}.API("get", "service"),
		"instar.probe":                                     Names{}.Probe(),
		"instar.hb.default.web.i-1":                        Names{}.Heartbeat("default", "web", "i-1"),
		"instar.obs.default.web.i-1":                       Names{}.Observation("default.web.i-1"),
		"instar.ack.default.web":                           Names{}.Acknowledge("default", "web"),
		"acme.hb.*.*.*":                                    own.Heartbeats(),
		"acme.cmd.service.default.web.create":              own.Command("service", "default.web", "create"),
		"acme.evt.instance.default.web.i-1.instance.ready": own.Event("instance", "default.web.i-1", "instance.ready"),
	} {
		require.Equal(t, want, got)
	}
	require.Equal(t, []string{"EVENTS", "EVENTS", "ACME_EVENTS"}, []string{Names{}.Stream(EventStream), Names{Prefix: DefaultPrefix}.Stream(EventStream), own.Stream(EventStream)})
	require.Equal(t, []string{"services", "services", "acme_services"}, []string{Names{}.Bucket("services"), Names{Prefix: DefaultPrefix}.Bucket("services"), own.Bucket("services")})
}

func TestParse(t *testing.T) {
	t.Parallel()
	n := Names{Prefix: "acme"}
	child := Address{Machine: "instance", Key: "default.web.i-1", Last: "create"}
	got, err := n.ParseStored(n.Stored(child.Machine, child.Key, child.Last))
	require.NoError(t, err)
	require.Equal(t, child, got)
	got, err = n.ParseEffect(n.Effect("instance", "start", "default.web.i-1"))
	require.NoError(t, err)
	require.Equal(t, Address{Machine: "instance", Key: "default.web.i-1", Last: "start"}, got)
	got, err = n.ParseEffect(n.Effect("task", "run=gpu", "default.shop.a"))
	require.NoError(t, err)
	require.Equal(t, Address{Machine: "task", Key: "default.shop.a", Last: "run=gpu"}, got)
	got, err = n.ParseEvent("acme.evt.instance.default.web.i-1.instance.became.ready", true)
	require.NoError(t, err)
	require.Equal(t, Address{Machine: "instance", Key: "default.web.i-1", Last: "instance.became.ready"}, got)
	got, err = n.ParseEvent("acme.evt.service.default.web.service.ready", false)
	require.NoError(t, err)
	require.Equal(t, Address{Machine: "service", Key: "default.web", Last: "service.ready"}, got)
	for want, parse := range map[string]func() (string, error){
		"default.web.i-1": func() (string, error) { return n.ParseHeartbeat("acme.hb.default.web.i-1") },
		"default.web.i-2": func() (string, error) { return n.ParseObservation("acme.obs.default.web.i-2") },
		"default.web":     func() (string, error) { return n.ParseAcknowledge("acme.ack.default.web") },
	} {
		key, err := parse()
		require.NoError(t, err)
		require.Equal(t, want, key)
	}
	for _, bad := range []string{"instar.hb.default.web.i-1", "acme.hb.default.web", "acme.hb.default.web.i.1", "acme.hb.default.web.I", "acme.hbx.default.web.i-1", "acme.hb"} {
		_, err := n.ParseHeartbeat(bad)
		require.ErrorIs(t, err, ErrSubject, bad)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	n := Names{}
	for _, subject := range []string{
		"", ".", "instar", "instar.in", "instar.in.", "instar.in.13", "instar.in.13.service", "instar.in.13.service.default", "instar.in.13.service.default.web",
		"instar.in.13..default.web.create", "instar.in.13.service.default.web.", "instar.in.13.service.default..create", "instar.in.13.service.a.b.c.d.create",
		"instar.in.12.service.default.web.create", "instar.in.013.service.default.web.create", "instar.in.+13.service.default.web.create", "instar.in..service.default.web.create",
		"acme.in.13.service.default.web.create", "instar.inn.12.service.default.web.create", "instar.cmd.service.default.web.create",
		"instar.fx.service", "instar.fx.service.apply", "instar.fx.service.apply.default", "instar.fx..apply.default.web", "instar.fx.service..default.web", "instar.fx.service.apply.a.b.c.d",
		"instar.fx.service.apply=.default.web", "instar.fx.service.apply=A.default.web", "instar.fx.service.=a.default.web", "instar.fx.service.apply=a=b.default.web",
		"instar.evt.service.default.web", "instar.evt.service.default", "instar.evt.service.default.web.", "instar.evt.service.default.web.a..b", "instar.evt..default.web.a",
	} {
		for _, parse := range parsers(n) {
			a, err := parse(subject)
			require.ErrorIs(t, err, ErrSubject, subject)
			require.Zero(t, a, subject)
		}
	}
	for _, bad := range strange {
		for _, subject := range []string{
			"instar.in.13." + bad + ".default.web.create", "instar.in.13.service." + bad + ".web.create", "instar.in.13.service.default." + bad + ".create",
			n.Stored("service", "default.web", bad), n.Stored("service", "default."+bad, "create"), n.Stored(bad, "default.web", "create"),
			n.Effect(bad, "apply", "default.web"), n.Effect("service", bad, "default.web"), n.Effect("service", "apply", "default."+bad), n.Effect("service", "apply", bad+".web"),
		} {
			a, err := n.ParseStored(subject)
			if err == nil { // "a.b" as an id is another entity: an id and its parent. Doors check ids one by one
				require.Equal(t, "a.b", bad)
				require.Equal(t, subject, n.Stored(a.Machine, a.Key, a.Last))
			}
			if a, err := n.ParseEffect(subject); err == nil {
				require.Equal(t, "a.b", bad)
				require.Equal(t, subject, n.Effect(a.Machine, a.Last, a.Key))
			}
		}
	}
}

func parsers(n Names) []func(string) (Address, error) {
	return []func(string) (Address, error){
		n.ParseStored, n.ParseEffect,
		func(s string) (Address, error) { return n.ParseEvent(s, false) },
		func(s string) (Address, error) { return n.ParseEvent(s, true) },
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a", "0", "a-b", "web-1", "a--b", long, "0-0", "xn--nxasmq6b"} {
		require.NoError(t, CheckLabel(s), s)
	}
	for _, s := range append([]string{"-", "-a", "a-", "A", "aB", "a_b", "a/b", "a:b", "a=b", "a\n"}, strange...) {
		require.ErrorIs(t, CheckLabel(s), ErrSubject, "%q", s)
	}
}

func TestSplitKey(t *testing.T) {
	t.Parallel()
	namespace, parent, id, err := SplitKey("default.web")
	require.NoError(t, err)
	require.Equal(t, []string{"default", "", "web"}, []string{namespace, parent, id})
	namespace, parent, id, err = SplitKey("default.web.i-1")
	require.NoError(t, err)
	require.Equal(t, []string{"default", "web", "i-1"}, []string{namespace, parent, id})
	for _, bad := range []string{"", "default", "a.b.c.d", ".", "..", "a.", ".a", "a..b", "a.b.", "A.b", "a.B", "a.b.*", "a.>", "a b.c"} {
		_, _, _, err := SplitKey(bad)
		require.ErrorIs(t, err, ErrSubject, "%q", bad)
	}
}

func TestChildrenShareThePartitionOfTheirParent(t *testing.T) {
	t.Parallel()
	seen := map[int]int{}
	for i := range 2000 {
		key := fmt.Sprintf("default.web-%d", i)
		p := Partition("instance", key)
		seen[p]++
		require.Equal(t, p, Partition("instance", key+".i-1"))
		require.Equal(t, p, Partition("instance", key+".i-2"))
	}
	require.Len(t, seen, Partitions)
	for p, n := range seen {
		require.Less(t, n, 2000*3/Partitions, "partition %d holds too much", p)
	}
	require.NotPanics(t, func() { Partition("", "") })
}

func TestCommandIDsAreScoped(t *testing.T) {
	t.Parallel()
	require.Equal(t, "service/default.web/k1", CommandID("service", "default.web", "k1"))
	require.Equal(t, "k1", UnscopeID("service", "default.web", CommandID("service", "default.web", "k1")))
	require.Equal(t, "a/b/c", UnscopeID("service", "default.web", CommandID("service", "default.web", "a/b/c")))
	require.Equal(t, "foreign", UnscopeID("service", "default.web", "foreign"))
}
