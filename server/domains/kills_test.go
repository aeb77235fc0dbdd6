package domains_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/domains"
	"github.com/bcc94042/instar/server/servertest"
	"github.com/bcc94042/instar/streams"
)

// The test binary is also the server that is killed.
func TestMain(m *testing.M) {
	servertest.Main(server.Options{Machines: []*machines.Machine{machine.Machine}, Providers: map[string]server.Provider{machine.Machine.Name: domains.Provider()}})
	os.Exit(m.Run())
}

// stored are the owner of a name, whether requests for it go anywhere, and how many certificates there are.
func (w *world) stored(host string) (owner string, leads bool, certificates int) {
	w.t.Helper()
	nc, err := nats.Connect(w.cfg.NATS.Listen)
	require.NoError(w.t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	table, err := js.KeyValue(w.t.Context(), domains.RoutesBucket)
	require.NoError(w.t, err)
	value, err := table.Get(w.t.Context(), host)
	require.NoError(w.t, err)
	var row domain.Row
	require.NoError(w.t, json.Unmarshal(value.Value(), &row))
	keys, _, err := streams.Subjects(w.t.Context(), nc, streams.BucketStream(domains.CertificatesBucket), ">", 0)
	require.NoError(w.t, err)
	for key := range keys {
		if strings.HasSuffix(key, "=2Ecrt") {
			certificates++
		}
	}
	return row.Owner, row.Route != nil, certificates
}

// kill -9 of the server at each step of a name, of its way elsewhere and of its end: what there is is what its state says.
func TestKillsAtEveryStep(t *testing.T) {
	if os.Getenv("INSTAR_KILLS") == "" {
		t.Skip("it takes a minute: make test-kills")
	}
	w := prepared(t, time.Hour, false)
	w.cfg.NATS.Listen = fmt.Sprint("127.0.0.1:", servertest.Port(t))
	p := &servertest.Process{T: t, Config: w.cfg}
	p.Start()
	s := p.Follow("instar.evt.domain.default.acme.shop.")
	killed := func(last string, at ...string) {
		t.Helper()
		s.Killed(last, at...)
		w.url = p.URL
	}
	w.url = p.URL
	const host = "shop.example.com"
	serves := func(name string) {
		t.Helper()
		require.Eventually(t, func() bool { _, text, _, err := w.fetch(host); return err == nil && text == name }, time.Minute, 50*time.Millisecond)
		owner, leads, certificates := w.stored(host)
		require.Equal(t, "default.acme.shop", owner)
		require.True(t, leads)
		require.Equal(t, 1, certificates)
	}

	status, v := w.bind("shop", host, app(t, "one"))
	require.Equal(t, http.StatusOK, status, "%v", v)
	killed(machine.EventMissing, machine.EventBound)
	d, _ := w.get("shop")
	for _, r := range d.Records {
		w.zone.set(r)
	}
	killed(machine.EventActive, machine.EventFound, machine.EventVerified, machine.EventIssued)
	w.becomes("shop", machine.Active)
	serves("one")

	status, v = w.do("POST", "/v1/tenants/acme/domains/shop/retarget", `{"route":{"targets":[{"address":"`+app(t, "two")+`"}]}}`)
	require.Less(t, status, 300, "%v", v)
	killed(machine.EventRouted, machine.EventRetargeted)
	serves("two")

	status, v = w.do("POST", "/v1/tenants/acme/domains/shop/remove", "")
	require.Less(t, status, 300, "%v", v)
	killed(machine.EventRemoved, machine.EventRemoving)
	w.becomes("shop", machine.Removed)
	owner, leads, certificates := w.stored(host)
	require.Empty(t, owner)
	require.False(t, leads)
	require.Zero(t, certificates)
	t.Logf("%d kills", s.Kills)
}
