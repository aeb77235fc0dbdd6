package instance_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines/instance"
)

var noon = time.Date(2026, 1, 26, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

func ptr(n int) *int { return &n }

func TestWeight(t *testing.T) {
	t.Parallel()
	warm := func(aggression float64) instance.Data {
		return instance.Data{Weight: 100, Terms: instance.Terms{Policy: instance.Policy{Warmup: "60s", Aggression: aggression}}}
	}
	cases := map[string]struct {
		d     instance.Data
		state string
		now   float64 // seconds after the state was entered
		want  int
	}{
		"Registered":                    {instance.Data{Weight: 100}, instance.Healthy, 0, 100},
		"ItsOwnWordInsteadOfRegistered": {instance.Data{Weight: 100, Reported: ptr(20)}, instance.Healthy, 0, 20},
		"PinnedInsteadOfAll":            {instance.Data{Weight: 100, Reported: ptr(20), Pinned: ptr(7)}, instance.Healthy, 0, 7},
		"PinnedToNothing":               {instance.Data{Weight: 100, Pinned: ptr(0)}, instance.Healthy, 0, 0},
		"WarmBeginsWithATenth":          {warm(0), instance.Warming, 0, 10},
		"WarmATenthForATenthOfTheTime":  {warm(0), instance.Warming, 6, 10},
		"WarmHalfWay":                   {warm(0), instance.Warming, 30, 50},
		"WarmAtTheEnd":                  {warm(0), instance.Warming, 60, 100},
		"WarmWhenTheTimerIsLate":        {warm(0), instance.Warming, 61, 100},
		"WarmFasterAtFirst":             {warm(2), instance.Warming, 15, 50},
		"WarmSlowerAtFirst":             {warm(0.5), instance.Warming, 30, 25},
		"AClockBehindChangesNothing":    {warm(0), instance.Warming, -5, 10},
		"SuspectIsHalf":                 {instance.Data{Weight: 100}, instance.Suspect, 0, 50},
		"SuspectKeepsOne":               {instance.Data{Weight: 1}, instance.Suspect, 0, 1},
		"SuspectAndWarm": {
			instance.Data{Weight: 100, WarmSince: at(-30), Terms: instance.Terms{Policy: instance.Policy{Warmup: "60s"}}}, instance.Suspect, 0, 25,
		},
		"WarmedBefore":       {instance.Data{Weight: 100, WarmSince: at(-30), Terms: instance.Terms{Policy: instance.Policy{Warmup: "60s"}}}, instance.Warming, 6, 60},
		"SmallWeightsStayOn": {instance.Data{Weight: 2, Terms: instance.Terms{Policy: instance.Policy{Warmup: "60s"}}}, instance.Warming, 0, 1},
		"Maintenance":        {instance.Data{Weight: 100, Maintenance: &instance.Maintenance{}}, instance.Healthy, 0, 0},
		"MaintenanceIsOn":    {instance.Data{Weight: 100, Maintenance: &instance.Maintenance{Until: at(10)}}, instance.Healthy, 9, 0},
		"MaintenanceIsOver":  {instance.Data{Weight: 100, Maintenance: &instance.Maintenance{Until: at(10)}}, instance.Healthy, 10, 100},
		"NotFound":           {instance.Data{Weight: 100}, instance.Unhealthy, 0, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := c.d.Known()
			require.Equal(t, c.want, instance.Weight(&known, c.state, noon, at(c.now)))
		})
	}
}

func TestRoutable(t *testing.T) {
	t.Parallel()
	d := &instance.Known{Weight: 100}
	for state, want := range map[string]bool{
		"": false, instance.Pending: false, instance.Unknown: false, instance.Warming: true, instance.Healthy: true,
		instance.Suspect: true, instance.Unhealthy: false, instance.Flapping: false, instance.Draining: false, instance.Deregistered: false,
	} {
		require.Equal(t, want, instance.Routable(state, d, noon), state)
	}
	require.Len(t, instance.Machine.States, 9, "a new state: is it routable?")
}

// The numbers are memberlist's: with k confirmations to come the window begins with the longest and ends with the
// shortest one; without any it is the shortest one.
func TestSuspectWindow(t *testing.T) {
	t.Parallel()
	window := func(c instance.Check, p instance.Policy, confirmed int) time.Duration {
		return (&instance.Terms{Check: c, Policy: p}).SuspectWindow(confirmed, c.AgreeOf()-1)
	}
	http := instance.Check{Type: "http", Interval: "4s", Observers: 9, Agree: 4} // k is 3
	require.Equal(t, 48*time.Second, window(http, instance.Policy{}, 0))
	require.Equal(t, 28*time.Second, window(http, instance.Policy{}, 1))
	require.InDelta(t, 48-40*math.Log(3)/math.Log(4), window(http, instance.Policy{}, 2).Seconds(), 1e-6)
	require.Equal(t, 8*time.Second, window(http, instance.Policy{}, 3))
	require.Equal(t, 8*time.Second, window(http, instance.Policy{}, 9))
	require.Equal(t, 96*time.Second, window(http, instance.Policy{SuspectMin: "16s"}, 0))
	require.Equal(t, 20*time.Second, window(http, instance.Policy{SuspectMax: "20s"}, 0))
	require.Equal(t, 8*time.Second, window(http, instance.Policy{SuspectMax: "1s"}, 0), "never less than the shortest")
	require.Equal(t, 10*time.Second, window(instance.Check{Type: "tcp"}, instance.Policy{}, 0), "nobody else looks")
	require.Equal(t, 5*time.Second, window(instance.Check{Type: "ttl", TTL: "10s"}, instance.Policy{}, 0))
	require.Equal(t, time.Second, window(instance.Check{Type: "ttl", TTL: "10s", Grace: "1s"}, instance.Policy{}, 0))
	require.Equal(t, time.Duration(0), window(instance.Check{Type: "ttl", Grace: "0s"}, instance.Policy{}, 0))
}

func TestFlaps(t *testing.T) {
	t.Parallel()
	score := func(results string) float64 {
		var f instance.Flaps
		for _, r := range results {
			f.Add(r == '+')
		}
		return f.Score()
	}
	require.Zero(t, score(""))
	require.Zero(t, score("-"))
	require.Zero(t, score("+++++++++++++++++++++"))
	require.InDelta(t, 100, score("+-+-+-+-+-+-+-+-+-+-+"), 1e-9, "every change of 20")
	require.InDelta(t, 6.25, score("++++++++++++++++++++-"), 1e-9, "the newest change counts 1.25")
	require.InDelta(t, 3.75, score("-++++++++++++++++++++"), 1e-9, "the oldest one counts 0.75")
	require.InDelta(t, 3.75, score("+-+--++++++++++++++++++++"), 1e-9, "what is older is forgotten")
	require.InDelta(t, 6.25, score("+-"), 1e-9, "results that there are not yet are no change")
	require.InDelta(t, 100*(1.25+1.25-0.5/19)/20, score("+++-+"), 1e-9)

	var f instance.Flaps
	for i := range 100 {
		require.Equal(t, min(i, 21), f.Len())
		f.Add(i%2 == 0)
	}
	was := f
	f.Add(true)
	require.NotEqual(t, was, f, "a copy is its own")
	f = instance.Flaps{}
	require.Zero(t, f.Score())
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	var d instance.Data
	require.Equal(t, "none", d.Check.Kind())
	require.Equal(t, 5*time.Second, d.Check.IntervalOf())
	require.Equal(t, 2*time.Second, d.Check.TimeoutOf())
	require.Equal(t, 15*time.Second, d.Check.TTLOf())
	require.Equal(t, 7500*time.Millisecond, d.Check.GraceOf())
	require.Equal(t, []any{"GET", "/", 1, 1, 1}, []any{d.Check.MethodOf(), d.Check.PathOf(), d.Check.ObserversOf(), d.Check.AgreeOf(), d.Check.RiseOf()})
	require.Equal(t, []any{2, 3, time.Duration(0), 1.0, 10 * time.Second}, []any{d.Rise(), d.Fall(), d.Warmup(), d.Aggression(), d.DrainTime()})
	require.Equal(t, []float64{30, 20}, []float64{d.FlapHigh(), d.FlapLow()})
	require.Equal(t, time.Duration(0), d.CriticalAfter(), "what is not checked is never critical for too long")
	d.Check.Type = "ttl"
	require.Equal(t, 1, d.Rise())
	require.Equal(t, time.Duration(0), d.CriticalAfter())
	d.Check.Type = "grpc"
	require.Equal(t, 30*time.Minute, d.CriticalAfter())
	d.Policy.DeregisterCriticalAfter = "0s"
	require.Equal(t, time.Duration(0), d.CriticalAfter())

	for _, c := range [][4]int{{1, 0, 1, 1}, {2, 0, 2, 1}, {3, 0, 2, 2}, {5, 0, 3, 3}, {9, 0, 5, 5}, {3, 1, 1, 3}, {3, 3, 3, 1}, {2, 9, 2, 1}} {
		check := instance.Check{Observers: c[0], Agree: c[1]}
		require.Equal(t, c[2:], []int{check.AgreeOf(), check.RiseOf()}, "%v", c)
	}
}

func TestEvery(t *testing.T) {
	t.Parallel()
	c := instance.Check{Interval: "10s"}
	for _, x := range []struct {
		state    string
		changing bool
		want     time.Duration
	}{
		{instance.Unknown, false, time.Second},
		{instance.Unknown, true, time.Second},
		{instance.Healthy, false, 10 * time.Second},
		{instance.Healthy, true, 5 * time.Second},
		{instance.Warming, false, 10 * time.Second},
		{instance.Suspect, false, 5 * time.Second},
		{instance.Unhealthy, false, 20 * time.Second},
		{instance.Unhealthy, true, 5 * time.Second},
		{instance.Flapping, false, 10 * time.Second},
	} {
		require.Equal(t, x.want, c.Every(x.state, x.changing), "%s %v", x.state, x.changing)
	}
	c.Interval = "200ms"
	require.Equal(t, 200*time.Millisecond, c.Every(instance.Unknown, false), "never slower than it is asked for")
}

func TestSplitAddress(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"10.0.0.7:8080": "10.0.0.7", "web.example:80": "web.example", "WEB_1:1": "WEB_1", "localhost:65535": "localhost",
		"[2001:db8::7]:443": "2001:db8::7", "[::1]:80": "::1", "[::ffff:10.0.0.7]:80": "::ffff:10.0.0.7", "[1:2:3:4:5:6:7:8]:80": "1:2:3:4:5:6:7:8",
		"[fe80::]:80": "fe80::", "127.0.0.1:80": "127.0.0.1", "1password.example:80": "1password.example",
	} {
		host, port, err := instance.SplitAddress(address)
		require.NoError(t, err, address)
		require.Equal(t, want, host)
		require.Positive(t, port)
	}
	for _, address := range []string{
		"", ":80", "web", "web:", "web:0", "web:08", "web:+8", "web:65536", "web:99999999999999999999", "web:80:80", "::1:80", "[::1]", "[::1:80", "[web]:80", "[10.0.0.7]:80",
		"a b:80", "web:80\n", "user@web:80", "http://web:80", "*:80", "0.0.0.0:80", "[::]:80", "[::ffff:0.0.0.0]:80", "[::ffff:0:0]:80", "[0:0:0:0:0:0:0:0]:80", "10.0.0:80", "10.0.0.256:80", "010.0.0.1:80", "1:80",
		"web..x:80", ".web:80", "-web:80", "web-:80", "[fe80::1%eth0]:80", "[1::2::3]:80", "[12345::]:80", "[1:2:3]:80", "[1:2:3:4:5:6:7:8:9]:80", "[:1:2:3:4:5:6:7]:80", "[10.0.0.7::]:80", "[:]:80", "[::1:]:80", "[g::]:80",
	} {
		_, _, err := instance.SplitAddress(address)
		require.Error(t, err, address)
	}
}

func TestChecksAndPoliciesAreValidated(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 4096)
	for name, c := range map[string]instance.Check{
		"None":   {},
		"TTL":    {Type: "ttl", TTL: "1s", Grace: "0s"},
		"HTTP":   {Type: "http", Interval: "100ms", Timeout: "10ms", Path: "/healthz?full=1", Method: "HEAD", Headers: map[string]string{"Host": "web", "X-Key": "a b"}, Status: []int{200, 429}, Match: "^ok", TLS: true, ServerName: "web.example"},
		"GRPC":   {Type: "grpc", GRPCService: "shop.v1.Cart", Port: 9090},
		"HTTP2":  {Type: "http", HTTPVersion: "2"},
		"Alias":  {Type: "alias", Alias: "db/0d5c1e6b-972a-5f58-a344-7be0219dc635"},
		"Script": {Type: "script", Command: []string{"/usr/bin/check", "-v"}},
		"Many":   {Type: "tcp", Observers: 9, Agree: 9},
	} {
		require.Nil(t, c.Validate(), name)
	}
	for want, c := range map[string]instance.Check{
		"type: is not one of none, ttl, http, tcp, grpc, udp, alias, script": {Type: "ping"},
		"interval: must be from 100ms to 24h0m0s":                            {Type: "http", Interval: "99ms"},
		"timeout: is not a duration such as 500ms, 5s or 2m":                 {Type: "http", Timeout: "2"},
		"ttl: must be from 1s to 24h0m0s":                                    {Type: "ttl", TTL: "999ms"},
		"grace: must be from 0s to 24h0m0s":                                  {Type: "ttl", Grace: "-1s"},
		"ttl: is for checks of the type ttl, this one is http":               {Type: "http", TTL: "5s"},
		"path: does not begin with /":                                        {Type: "http", Path: "healthz"},
		"method: is not one of GET, HEAD, POST, PUT, OPTIONS":                {Type: "http", Method: "DELETE"},
		"headers: are together larger than 16384 bytes":                      {Type: "http", Headers: map[string]string{"a": long, "b": long, "c": long, "d": long, "e": long}},
		"command: is larger than 16384 bytes":                                {Type: "script", Command: []string{long, long, long, long, long}},
		"httpVersion: is not one of 1.1, 2":                                  {Type: "http", HTTPVersion: "3"},
		"httpVersion: is for checks of the type http, this one is tcp":       {Type: "tcp", HTTPVersion: "2"},
		`headers: "a:b" is not the name of a header`:                         {Type: "http", Headers: map[string]string{"a:b": "c"}},
		"headers.a: contains a control character":                            {Type: "http", Headers: map[string]string{"a": "b\r\nc: d"}},
		"status[0]: must be from 100 to 599":                                 {Type: "http", Status: []int{600}},
		"match: is not a regular expression: missing closing ]: `[a`":        {Type: "http", Match: "[a"},
		"serverName: is not a DNS name or an IPv4 address":                   {Type: "http", ServerName: "a/b"},
		"alias: is not <service>/<instanceId>":                               {Type: "alias", Alias: "db/a.b"},
		"command: is required for a script":                                  {Type: "script"},
		"observers: must be from 0 to 9":                                     {Type: "tcp", Observers: 10},
		"agree: must be from 0 to the number of observers, which is 1":       {Type: "tcp", Agree: 2},
	} {
		r := c.Validate()
		require.NotNil(t, r, want)
		require.Equal(t, want, r.Message)
	}
	require.Nil(t, (&instance.Policy{}).Validate())
	require.Nil(t, (&instance.Policy{Rise: 1, Fall: 100, Warmup: "0s", Aggression: 10, SuspectMin: "1s", SuspectMax: "1s", DeregisterCriticalAfter: "0s", FlapHigh: 100, FlapLow: 100}).Validate())
	for want, p := range map[string]instance.Policy{
		"fall: must be from 0 to 100":                   {Fall: -1},
		"aggression: must be from 0 to 10":              {Aggression: math.NaN()},
		"suspectMax: is shorter than suspectMin":        {SuspectMin: "2s", SuspectMax: "1s"},
		"drain: must be from 0s to 24h0m0s":             {Drain: "25h"},
		"flapLow: is greater than flapHigh (30 by now)": {FlapLow: 31},
	} {
		r := p.Validate()
		require.NotNil(t, r, want)
		require.Equal(t, want, r.Message)
	}
}
