package domains_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/server/config"
)

func TestANameIsBoundServedSentElsewhereAndRemoved(t *testing.T) {
	t.Parallel()
	for name, plain := range map[string]bool{"TLS-ALPN-01": false, "HTTP-01": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, time.Hour, plain)
			const host = "shop.example.com"
			status, v := w.bind("shop", host, app(t, "one"))
			require.Equal(t, http.StatusOK, status, "%v", v)
			require.Eventually(t, func() bool { d, _ := w.get("shop"); return d.Problem != "" && len(d.Records) == 2 }, time.Minute, 50*time.Millisecond, "it says what is missing")
			_, _, _, err := w.fetch(host)
			require.Error(t, err, "nothing is served under a name that is not proven")
			d, _ := w.get("shop")
			for _, r := range d.Records {
				w.zone.set(r)
			}
			d = w.becomes("shop", machine.Active)
			require.Empty(t, d.Problem)
			status, text, serial, err := w.fetch(host)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, "one", text)
			require.Equal(t, d.Certificate.Serial, serial)

			status, v = w.bind("again", host, app(t, "next"))
			require.Equal(t, http.StatusOK, status, "%v", v)
			require.Eventually(t, func() bool { d, state := w.get("again"); return state == machine.PendingDNS && d.Problem != "" }, time.Minute, 50*time.Millisecond, "it waits for a proof of its own")
			status, v = w.bind("own", "x.apps.example.net", app(t, "thief"))
			require.Equal(t, http.StatusUnprocessableEntity, status, "%v", v)
			if plain {
				c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
				req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+w.http+"/a?b=c", nil)
				require.NoError(t, err)
				req.Host = host
				resp, err := c.Do(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, "https://"+host+"/a?b=c", resp.Header.Get("Location"))
			}

			for at, why := range map[string]string{w.https: "it is this program's own", "169.254.169.254:80": "allow its range", "[::ffff:169.254.169.254]:80": "allow its range"} {
				for path, body := range map[string]string{"never/bind": `"host":"never.example.com",`, "shop/retarget": ""} {
					status, v = w.do("POST", "/v1/tenants/acme/domains/"+path, `{`+body+`"route":{"targets":[{"address":"10.0.0.7:80"},{"address":"`+at+`"}]}}`)
					require.Equal(t, http.StatusUnprocessableEntity, status, "%v", v)
					require.Contains(t, fmt.Sprint(v), "body.route.targets[1].address")
					require.Contains(t, fmt.Sprint(v), why)
				}
			}

			status, v = w.do("POST", "/v1/tenants/acme/domains/shop/retarget", `{"route":{"targets":[{"address":"`+app(t, "two")+`"}]}}`)
			require.Less(t, status, 300, "%v", v)
			require.Eventually(t, func() bool { _, text, _, err := w.fetch(host); require.NoError(t, err); return text == "two" }, time.Minute, 20*time.Millisecond)

			status, v = w.do("POST", "/v1/tenants/acme/domains/shop/remove", "")
			require.Less(t, status, 300, "%v", v)
			w.becomes("shop", machine.Removed)
			require.Eventually(t, func() bool { _, _, _, err := w.fetch(host); return err != nil }, time.Minute, 20*time.Millisecond, "it is served no more")
			d, _ = w.get("again")
			for _, r := range d.Records {
				w.zone.set(r)
			}
			w.becomes("again", machine.Active)
			_, text, again, err := w.fetch(host)
			require.NoError(t, err)
			require.Equal(t, "next", text)
			require.NotEqual(t, serial, again, "the certificate of the one before was forgotten")
		})
	}
}

func TestACertificateIsRenewedAndLapsesWhereThatFails(t *testing.T) {
	t.Parallel()
	w := setup(t, 12*time.Second, false)
	const host = "brief.example.com"
	first := w.serves("brief", host, app(t, "brief")).Certificate
	var second *machine.Certificate
	require.Eventually(t, func() bool {
		d, state := w.get("brief")
		require.Equal(t, machine.Active, state)
		second = d.Certificate
		return second.Serial != first.Serial
	}, time.Minute, 50*time.Millisecond, "it is renewed before its end")
	require.Eventually(t, func() bool { _, _, serial, err := w.fetch(host); return err == nil && serial != first.Serial }, time.Minute, 50*time.Millisecond)
	w.ca.down.Store(true)
	w.becomes("brief", machine.Expired)
	require.Eventually(t, func() bool { status, _, _, err := w.fetch(host); return err != nil || status != http.StatusOK }, time.Minute, 50*time.Millisecond)
}

func TestACertificateAuthorityThatLimitsRatesIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := setup(t, time.Hour, false)
	w.ca.limit.Store(true)
	status, v := w.bind("shop", "shop.example.com", app(t, "shop"))
	require.Less(t, status, 300, "%v", v)
	for _, r := range w.becomes("shop", machine.PendingDNS).Records {
		w.zone.set(r)
	}
	w.becomes("shop", machine.Issuing)
	next := func() string {
		_, v := w.do("GET", "/v1/tenants/acme/domains/shop", "")
		effects, _ := v["effects"].(map[string]any)
		issue, _ := effects["issue"].(map[string]any)
		next, _ := issue["nextTry"].(string)
		return next
	}
	require.Eventually(t, func() bool {
		at, err := time.Parse(time.RFC3339, next())
		return err == nil && time.Until(at) > 100*time.Minute
	}, time.Minute, 50*time.Millisecond, "the next try is when it has said")
	before := next()
	for _, body := range []string{`{"route":{"targets":[{"address":"` + app(t, "next") + `"}]}}`, `{"route":{"targets":[{"address":"` + app(t, "third") + `"}]},"detach":true}`} {
		status, v = w.do("POST", "/v1/tenants/acme/domains/shop/retarget", body)
		require.Less(t, status, 300, "%v", v)
		require.Equal(t, before, next(), "also where its requests are to go elsewhere")
	}
}

// A server that was stopped serves the names again, with the certificates that it had.
func TestANameIsServedAgainAfterAStart(t *testing.T) {
	t.Parallel()
	w := setup(t, time.Hour, false)
	const host = "shop.example.com"
	serial := w.serves("shop", host, app(t, "shop")).Certificate.Serial
	w.stop()
	w.ca.down.Store(true)
	w.start()
	require.Eventually(t, func() bool {
		_, text, again, err := w.fetch(host)
		return err == nil && text == "shop" && again == serial
	}, time.Minute, 50*time.Millisecond)
}

// A name in a zone that takes updates is proven by a record there: nothing of it has to be reached from outside.
func TestANameInAZoneThatTakesUpdatesIsProvenByDNS(t *testing.T) {
	t.Parallel()
	key := filepath.Join(t.TempDir(), "dns.key")
	require.NoError(t, os.WriteFile(key, []byte("key \""+keyName+"\" {\n\talgorithm hmac-sha256;\n\tsecret \""+secret+"\";\n};\n"), 0o600))
	w := setup(t, time.Hour, true, func(w *world) {
		w.cfg.Domains.HTTP = "" // and where the certificate authority asks for TLS nobody answers
		w.cfg.Domains.DNS = config.DomainsDNS{Server: w.zone.addr, Zones: "hosted.example", Key: key}
	})
	const host = "shop.hosted.example"
	w.serves("shop", host, app(t, "shop"))
	_, text, _, err := w.fetch(host)
	require.NoError(t, err)
	require.Equal(t, "shop", text)
	w.zone.mu.Lock()
	defer w.zone.mu.Unlock()
	require.Positive(t, w.zone.updates)
	require.NotContains(t, w.zone.texts, "_acme-challenge."+host+".", "the record is taken back")
}
