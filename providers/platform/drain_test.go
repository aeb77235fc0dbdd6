//go:build linux

package platform_test

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/session"
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
