//go:build linux

package platform_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	domains "github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/domain"
	"github.com/bcc94042/instar/providers/platform"
)

// What a session says of its certificate is what there is, in every state in which the tenant is served.
func TestALookTellsHowTheCertificateIs(t *testing.T) {
	t.Parallel()
	const key, host = "default.acme.own", "acme.example.test"
	ends := time.Now().Add(90 * 24 * time.Hour).UTC()
	i, table := &issuer{due: ends.Add(-30 * 24 * time.Hour)}, &rows{all: map[string]domain.Row{host: {Owner: "instance_provisioning/" + key, Route: &domains.Route{}}}}
	i.has = domains.Certificate{Issuer: "test", Serial: "1", NotAfter: ends}
	p := &platform.Provider{Table: table, Issuer: i}
	d := &machine.Data{PrimaryDomain: host, Certificate: &machine.Certificate{Serial: "1", NotAfter: ends}}
	e := &machines.Entity{Namespace: "default", Parent: "acme", ID: "own", State: machine.Ready, Data: d}
	look := func() machines.Finding {
		t.Helper()
		f, err := p.Look(t.Context(), e, true)
		require.NoError(t, err)
		return f
	}
	f := look()
	require.Empty(t, f.Input)
	require.Greater(t, time.Until(f.Until), 9*time.Minute)

	i.due = time.Now()
	f = look()
	require.Empty(t, f.Input)
	require.WithinDuration(t, time.Now(), f.Until, time.Minute, "it is being renewed: the next look is soon")
	i.trouble = "the certificate authority is away"
	for _, state := range []string{machine.Ready, machine.Withdrawing, machine.Upgrading} {
		e.State, d.Phase = state, session.WaitingApproval
		f = look()
		require.Equal(t, machine.ReportUnrenewed, f.Input, state)
		require.Equal(t, machine.Trouble{Message: i.trouble}, f.Data)
	}
	d.Phase = session.Executing // a share is watched
	require.Equal(t, machine.ReportUnrenewed, look().Input)
	e.State, d.Phase, d.Problem = machine.Ready, "", i.trouble
	require.Empty(t, look().Input, "it is told once")
	i.err = providers.Errorf(providers.Internal, "the stored certificate cannot be read")
	require.Equal(t, machine.Trouble{Message: "the stored certificate cannot be read"}, look().Data)
	i.err = providers.Errorf(providers.Unavailable, "the store is away")
	_, err := p.Look(t.Context(), e, true)
	require.Error(t, err, "that passes")

	i.err, i.trouble, i.due, i.has.Serial = nil, "", ends, "2"
	renewed := machines.Finding{Input: machine.ReportRenewed, Data: machine.Certificate{Issuer: "test", Serial: "2", NotAfter: ends}}
	require.Equal(t, renewed, look())
	d.Certificate.Serial = "2"
	require.Equal(t, renewed, look(), "it is in order again")

	table.all[host] = domain.Row{Owner: "instance_provisioning/default.other.own", Route: &domains.Route{}}
	i.has.Serial = "3"
	require.Empty(t, look().Input, "the name is another's by now")
}

// What the certificate authority refuses for the name itself reaches the machine under its code, by which it is not tried again.
func TestARefusedCertificateKeepsItsCode(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.issuer.err = providers.Coded(domain.CodeCertificate, "CAA forbids it")
	require.Equal(t, &machines.Failure{Code: "CERTIFICATE_REFUSED", Message: "CAA forbids it"}, w.perform("own", "certify", 1, task("default.acme.own")).Failure)
}
