//go:build linux

package platform_test

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform"
	apps "github.com/bcc94042/instar/providers/platform/app"
)

// asks begins a request whose body has no end until finish, and returns when the release has it.
func (w *world) asks(address string) (finish func(), answer <-chan string) {
	w.t.Helper()
	body, more := io.Pipe()
	said := make(chan string, 1)
	go func() {
		defer close(said)
		resp, err := w.Client.Post("https://acme.example.test/", "text/plain", body)
		if err != nil {
			said <- err.Error()
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			said <- err.Error()
			return
		}
		said <- string(text)
	}()
	_, err := more.Write([]byte("it begins")) // which the proxy has read
	require.NoError(w.t, err)
	require.Eventually(w.t, func() bool { return w.rows.proxy.InFlight(address) == 1 }, time.Minute, 5*time.Millisecond)
	finish = sync.OnceFunc(func() { _ = more.Close() })
	w.t.Cleanup(finish) // of a test that has failed
	return finish, said
}

func TestAReleaseAnswersWhatItWasAskedBeforeItEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, b *machine.Task, next machine.App) (effect string, goes machine.App){
		"of an upgrade": func(_ *world, b *machine.Task, next machine.App) (string, machine.App) {
			b.Upgrade.App = &next
			return "retire", *b.App
		},
		"of one that is withdrawn": func(w *world, b *machine.Task, next machine.App) (string, machine.App) {
			old := *b.App
			b.App = &next
			twice[machine.Route](w, "route", 10, *b) // the traffic is at the new one
			b.App = &old
			return "withdraw", next
		},
		"of a tenant that leaves": func(_ *world, b *machine.Task, _ machine.App) (string, machine.App) {
			b.Actions = []session.Action{{Name: "remove_route", Kind: machine.KindRoute}, {Name: "delete_app:" + b.App.Name, Kind: machine.KindApp}}
			return "undo", *b.App
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, b := setup(t), task("default.acme.own")
			app := twice[machine.App](w, "deploy", 1, b)
			b.App = &app
			twice[machine.Route](w, "route", 2, b)
			b.Upgrade, b.Release = &machine.Upgrade{From: "1.0", To: "1.1", Release: 2, Weight: 100}, &machine.App{Name: "tenant-acme-r2", Version: "1.1"}
			next := twice[machine.App](w, "deploy", 3, b)
			effect, goes := end(w, &b, next)
			finish, answer := w.asks(goes.Address)
			w.InFlight = func(address string) int {
				require.Equal(t, goes.Address, address)
				n := w.rows.proxy.InFlight(address) // before it can be answered
				finish()
				return n
			}
			w.Apps = &ending{w.Apps, func() { require.Zero(t, w.rows.proxy.InFlight(goes.Address), "it ends when it has answered") }}
			require.Nil(t, w.perform("own", effect, 11, b).Failure)
			require.Regexp(t, `^1\.[01] acme `, <-answer)
		})
	}
}

// bounding is a provider that cannot limit what one thousandth of a processor more than half of one needs.
type bounding struct{ apps.Provider }

func (bounding) Bounds(l apps.Limits) ([]string, error) {
	if l.CPU > 500 {
		return nil, providers.Errorf(providers.Invalid, "no processor time can be limited")
	}
	return []string{"a note"}, nil
}

// What cannot hold is said before anything is made, also of an upgrade.
func TestAPlanSaysWhichLimitsCannotHold(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	serves := twice[machine.App](w, "deploy", 1, b)
	b.App = &serves
	w.Apps, w.Sizes = bounding{w.Apps}, map[string]platform.Size{"small": {Limits: apps.Limits{CPU: 500}}}
	require.Equal(t, []string{"a note"}, w.perform("own", "plan", 2, b).Data.(machine.Plan).Notes)
	w.Sizes["small"] = platform.Size{Limits: apps.Limits{CPU: 501}}
	for _, u := range []*machine.Upgrade{nil, {From: "1.0", To: "1.1", Release: 2}} {
		b.Upgrade = u
		f := w.perform("own", "plan", 2, b).Failure
		require.NotNil(t, f)
		require.False(t, f.Retryable)
		require.Contains(t, f.Message, "no processor time can be limited")
	}
}

// Releases that end together drain together.
func TestReleasesDrainTogether(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	app := twice[machine.App](w, "deploy", 1, b)
	b.App = &app
	b.Actions = []session.Action{{Name: "delete_app:" + app.Name, Kind: machine.KindApp}}
	for n := 2; n < 5; n++ {
		b.Release = &machine.App{Name: fmt.Sprint("tenant-acme-r", n), Version: "1.1"}
		twice[machine.App](w, "deploy", uint64(n), b)
		b.Ledger = append(b.Ledger, session.Entry{Kind: machine.KindApp, Name: b.Release.Name, State: session.Created})
	}
	b.Upgrade, b.Release = &machine.Upgrade{From: "1.0", To: "1.0", Release: 1, Weight: 100, App: &app}, &app
	asked := map[string]int{}
	w.InFlight, w.Drain = func(address string) int { asked[address]++; return 1 }, 100*time.Millisecond
	require.Nil(t, w.perform("own", "retire", 9, b).Failure)
	require.Len(t, asked, 3)
	waited := 0
	for _, n := range asked {
		if n > 1 {
			waited++
		}
	}
	require.LessOrEqual(t, waited, 1, "the time of all is over with that of the first one")
}

func TestAReleaseEndsAlsoWhenWhatItWasAskedDoesNot(t *testing.T) {
	t.Parallel()
	w, b := setup(t), task("default.acme.own")
	app := twice[machine.App](w, "deploy", 1, b)
	b.App = &app
	asked := 0
	w.InFlight, w.Drain = func(string) int { asked++; return 1 }, 100*time.Millisecond
	b.Actions = []session.Action{{Name: "delete_app:" + app.Name, Kind: machine.KindApp}}
	require.Nil(t, w.perform("own", "undo", 2, b).Failure)
	require.Positive(t, asked)
	_, err := http.Get("http://" + app.Address)
	require.Error(t, err)
}
