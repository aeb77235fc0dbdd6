package queue_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/transcript"
)

const transcripts = "testdata/*.txt"

func TestTranscripts(t *testing.T) {
	t.Parallel()
	transcript.Run(t, queue.Machine, transcripts)
}

func TestDiagramsAreUpToDate(t *testing.T) {
	t.Parallel()
	transcript.Diagrams(t, queue.Machine)
}

// Transcripts are of an entity called web, which no entry may be called: what happens to one that may is checked here.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		namespace, id, body, refused string
	}{
		{"default", "cluster", `{"limit":8,"aging":"30s"}`, ""},
		{"default", "cluster", `{"limit":4000}`, ""},
		{"default", "cluster", `{"limit":4001}`, machines.CodeGuard},
		{"default", "all", `{"limit":4001}`, ""},
		{"tenant", "cluster", `{"limit":8}`, machines.CodeGuard},
		{"tenant", "all", `{"limit":8,"rate":10,"interval":"1m","cap":1000}`, ""},
		{"tenant", "all", `{"aging":"30s"}`, machines.CodeGuard},
		{"tenant", "all", `{"timeout":"30s"}`, machines.CodeGuard},
		{"tenant", "type-languages", `{"timeout":"30s","attempts":2}`, ""},
		{"tenant", "pool-gpu", `{"limit":1}`, ""},
		{"tenant", "pool-gpu", `{"attempts":1}`, machines.CodeGuard},
		{"tenant", "type-", `{}`, machines.CodeGuard},
		{"tenant", "languages", `{}`, machines.CodeGuard},
		{"tenant", "all", `{"limit":-1}`, machines.CodeValidation},
		{"tenant", "all", `{"interval":"1m"}`, machines.CodeValidation},
		{"tenant", "all", `{"rate":1,"interval":"1ms"}`, machines.CodeValidation},
	} {
		_, _, err := queue.Machine.Step(queue.Machine.New(x.namespace, "", x.id), machines.Input{Command: "configure", Body: json.RawMessage(x.body)})
		if x.refused == "" {
			require.NoError(t, err, "%s %s", x.id, x.body)
			continue
		}
		var r *machines.Refusal
		require.ErrorAs(t, err, &r, "%s %s", x.id, x.body)
		require.Equal(t, x.refused, r.Code)
	}
}

// What does not fit is told also of an entry that is there.
func TestWhatDoesNotFitIsTold(t *testing.T) {
	t.Parallel()
	e, _, err := queue.Machine.Step(queue.Machine.New("default", "", "type-lines"), machines.Input{Command: "configure", Body: json.RawMessage(`{"limit":1}`)})
	require.NoError(t, err)
	_, _, err = queue.Machine.Step(e, machines.Input{Command: "configure", Body: json.RawMessage(`{"aging":"30s"}`)})
	require.ErrorContains(t, err, "aging is for cluster")
}

func TestAnEntryIsConfiguredPausedAndDeleted(t *testing.T) {
	t.Parallel()
	e := queue.Machine.New("default", "", "all")
	for _, x := range []struct{ command, body, result, state string }{
		{"pause", `{"reason":"quota"}`, machines.Applied, queue.Paused},
		{"pause", `{}`, machines.Unchanged, queue.Paused},
		{"configure", `{"limit":8}`, machines.Applied, queue.Paused},
		{"configure", `{"limit":8}`, machines.Unchanged, queue.Paused},
		{"resume", ``, machines.Applied, queue.Active},
		{"resume", ``, machines.Unchanged, queue.Active},
		{"configure", `{}`, machines.Applied, queue.Active},
		{"configure", `{}`, machines.Unchanged, queue.Active},
		{"pause", ``, machines.Applied, queue.Paused},
		{"delete", ``, machines.Applied, queue.Deleted},
		{"configure", `{"limit":1}`, machines.Applied, queue.Active},
		{"delete", ``, machines.Applied, queue.Deleted},
		{"pause", ``, machines.Applied, queue.Paused},
	} {
		next, out, err := queue.Machine.Step(e, machines.Input{Command: x.command, Body: json.RawMessage(x.body), Actor: "somebody"})
		require.NoError(t, err, "%s %s", x.command, x.body)
		require.Equal(t, x.result, out.Result, "%s %s", x.command, x.body)
		require.Equal(t, x.state, next.State)
		require.Equal(t, x.state == queue.Paused, next.Data.(*queue.Data).Paused != nil)
		e = next
	}
}

// What is said of a command says why it is paused, where its body does not.
func TestThePauseOfACommandWithAReasonHasIt(t *testing.T) {
	t.Parallel()
	for body, reason := range map[string]string{``: "quota", `{}`: "quota", `{"reason":"the disk"}`: "the disk"} {
		e, _, err := queue.Machine.Step(queue.Machine.New("default", "", "all"), machines.Input{Command: "pause", Body: json.RawMessage(body), Actor: "ann", Reason: "quota"})
		require.NoError(t, err)
		require.Equal(t, &queue.Pause{Reason: reason, By: "ann"}, e.Data.(*queue.Data).Paused)
	}
}
