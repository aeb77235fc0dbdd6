package worker

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// What a handler says is cut into lines, without what steers a terminal, and how far it is is told once a second.
func TestWords(t *testing.T) {
	t.Parallel()
	w := setup(t)
	nc := w.connect()
	heard, err := nc.SubscribeSync("elsewhere.>")
	require.NoError(t, err)
	k, err := New(Options{NC: nc, Prefix: "elsewhere", Name: "w-1"})
	require.NoError(t, err)
	said := Task[how]{words: &words{w: k, machine: "task", key: "default.a.one", attempt: "run-1-1"}}
	said.Log("one\x1b[31m\n\ntwo\r\n" + strings.Repeat("ä", maxLine))
	said.Progress(1, "begun")
	said.words.told = time.Now().Add(time.Hour) // whatever the machine takes for a line
	said.Progress(2, "too soon")
	said.words.told = time.Now().Add(-toldEvery)
	said.Progress(3, "later")
	silent := Task[how]{}
	silent.Log("nobody hears it")
	silent.Progress(4, "nor this")
	require.NoError(t, nc.Publish("elsewhere.end", nil))
	var lines, told []string
	for {
		m, err := heard.NextMsg(time.Minute)
		require.NoError(t, err)
		switch m.Subject {
		case "elsewhere.log.task.default.a.one":
			require.Equal(t, nats.Header{"Instar-Attempt": {"run-1-1"}}, m.Header)
			lines = append(lines, string(m.Data))
			continue
		case "elsewhere.cmd.task.default.a.one.progress":
			require.True(t, strings.HasPrefix(m.Header.Get("Nats-Msg-Id"), "task/default.a.one/"))
			require.Equal(t, "worker w-1", m.Header.Get("Instar-Actor"))
			told = append(told, string(m.Data))
			continue
		}
		break
	}
	half := strings.Repeat("ä", maxLine/2)
	require.Equal(t, []string{"one[31m", "", "two", half, half}, lines)
	require.Equal(t, []string{
		`{"data":{"attempt":"run-1-1","message":"begun","percent":1,"worker":"w-1"}}`, `{"data":{"attempt":"run-1-1","message":"later","percent":3,"worker":"w-1"}}`,
	}, told)
}
