package api_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/api/admin"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// edit has a letter of a command of the gadget a redriven with another body.
func (b *bundle) edit(command, body string) answer {
	b.t.Helper()
	l := letter(7, "default.a", `{"size":"large"}`)
	l.Subject = streams.Names{}.Stored("gadget", "default.a", command)
	b.letters.all = []admin.DeadLetter{l}
	return b.post("/v1/dead-letters/7/redrive", `{"body":`+body+`}`, "Instar-Reason", "typo")
}

// An edit is a command like others: what its route refuses is refused, and the letter stays.
func TestEditOfADeadLetter(t *testing.T) {
	b := setup(t)
	b.ready("a")
	t.Run("Applied", func(t *testing.T) {
		require.Equal(t, []any{7.0}, b.edit("resize", `{"size":9}`).json(t)["redriven"])
		require.Empty(t, b.letters.all)
		require.EqualValues(t, 9, b.get("/v1/gadgets/a").json(t)["data"].(map[string]any)["spec"].(map[string]any)["size"])
		require.Equal(t, "boss", b.engine.header(streams.HeaderActor))
		require.Equal(t, "edit of dead letter 7 of ann: typo", b.engine.header(streams.HeaderReason))
		require.Empty(t, b.engine.header(streams.HeaderExpect))
		require.Empty(t, b.engine.header(streams.HeaderLookup))
		require.Contains(t, b.log.String(), "edit of dead letter 7 of ann: typo")
	})
	t.Run("AgainIsTheSameCommand", func(t *testing.T) {
		version := b.get("/v1/gadgets/a").json(t)["version"]
		require.Equal(t, 200, b.edit("resize", `{"size":9}`).StatusCode)
		require.Empty(t, b.letters.all)
		require.Equal(t, version, b.get("/v1/gadgets/a").json(t)["version"])
	})
	t.Run("BadBody", func(t *testing.T) {
		for command, body := range map[string]string{"resize": `{"size":"x"}`, "touch": `{"size":1}`} {
			b.edit(command, body).problem(t, 422, machines.CodeValidation)
			require.Len(t, b.letters.all, 1)
		}
	})
	t.Run("Refused", func(t *testing.T) {
		b.edit("mend", `{}`).problem(t, 409, machines.CodeTransition)
		require.Len(t, b.letters.all, 1)
	})
	t.Run("RefusedIsAskedAgain", func(t *testing.T) {
		b.edit("shrink", `{}`).problem(t, 409, machines.CodeGuard)
		require.Len(t, b.letters.all, 1)
		require.Equal(t, 200, b.post("/v1/gadgets/a/resize", `{"size":50}`).StatusCode)
		require.Equal(t, 200, b.edit("shrink", `{}`).StatusCode)
		require.Empty(t, b.letters.all)
	})
	t.Run("NoCommandOfUsers", func(t *testing.T) {
		for _, command := range []string{"made", "broke", machines.CommandElapsed, machines.CommandFailed, machines.CommandReconcile, machines.CommandRepair, machines.CommandDrop, "dance"} {
			b.edit(command, `{}`).problem(t, 422, machines.CodeValidation)
			require.Len(t, b.letters.all, 1)
		}
	})
	t.Run("NotDecided", func(t *testing.T) {
		b.engine.hush(func(command string) bool { return command == "delete" })
		a := b.edit("delete", `{}`)
		require.Equal(t, 409, a.StatusCode, string(a.body))
		require.Len(t, b.letters.all, 1)
	})
}

// What is put back before, as it was, is not put back again with another body; nor is what is no whole command of the letter's entity.
func TestNoEdit(t *testing.T) {
	b := setup(t)
	b.ready("a")
	b.engine.remember("gadget", "default.a", "redrive-1", "create", "{}", machines.Answer{Outcome: machines.Applied})
	for change, want := range map[string]string{"PutBack": machines.CodeUnknown, "Effect": machines.CodeValidation, "Partial": machines.CodeValidation, "OfAnother": machines.CodeValidation} {
		l := letter(2, "default.a", `{}`)
		switch change {
		case "PutBack":
			l.RedriveID = "redrive-1"
		case "Effect":
			l.Subject = streams.Names{}.Effect("gadget", "work", l.Key)
		case "Partial":
			l.Partial = true
		case "OfAnother":
			l.Subject = streams.Names{}.Stored("gadget", "default.b", "create")
		}
		b.letters.all = []admin.DeadLetter{l}
		a := b.post("/v1/dead-letters/2/redrive", `{"body":{"spec":{"name":"x"}}}`)
		require.Equal(t, want, a.json(t)["code"], change+": "+string(a.body))
		require.Len(t, b.letters.all, 1)
	}
}

// A letter that names no entity may be of any namespace, also for a token of one that is called unknown.
func TestLettersWithoutAnEntity(t *testing.T) {
	b := setup(t)
	l := letter(1, "unknown.unknown", `{"secret":"hush"}`)
	l.Machine, l.Subject = "unknown", strings.Repeat("x", 10)
	b.letters.all = []admin.DeadLetter{l}
	require.Empty(t, b.get("/v1/dead-letters", "Authorization", "Bearer unknown-token").json(t)["items"])
	b.get("/v1/dead-letters/1", "Authorization", "Bearer unknown-token").problem(t, 404, machines.CodeNotFound)
	require.Len(t, b.get("/v1/dead-letters").json(t)["items"], 1)
}
