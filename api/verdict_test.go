package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// What came of a command stays what it was when the entity goes on.
func TestVerdictOfAnOperationIsFrozen(t *testing.T) {
	b := setup(t)
	start := func(path, body, key string) string {
		a := b.post(path, body, "Prefer", "respond-async", "Idempotency-Key", key)
		require.Equal(t, 202, a.StatusCode, string(a.body))
		return a.Header.Get("Location")
	}
	ask := func(at string) map[string]any {
		a := b.get(at, "Prefer", "wait=10")
		require.Equal(t, 200, a.StatusCode, string(a.body))
		return a.json(t)
	}
	without := func(op map[string]any) map[string]any { // these are known as long as the value is there; made tells no event
		delete(op["response"].(map[string]any), "revision")
		delete(op["metadata"].(map[string]any), "updatedAt")
		return op
	}
	t.Run("AfterLaterCommands", func(t *testing.T) {
		create := start("/v1/gadgets/a/create", `{"spec":{"name":"lamp"}}`, "a1")
		first := ask(create)
		require.Equal(t, "READY", first["response"].(map[string]any)["state"])
		require.EqualValues(t, 1, first["response"].(map[string]any)["generation"])
		require.Contains(t, first["response"], "revision")
		resize := start("/v1/gadgets/a/resize", `{"size":7}`, "a2")
		resized := ask(resize)
		require.EqualValues(t, 2, resized["response"].(map[string]any)["generation"])
		touch := start("/v1/gadgets/a/touch", "", "a3")
		touched := ask(touch)
		require.Equal(t, "unchanged", touched["response"].(map[string]any)["outcome"])
		deleted := ask(start("/v1/gadgets/a/delete", "", "a4"))
		require.Equal(t, "DELETED", deleted["response"].(map[string]any)["state"])
		ask(start("/v1/gadgets/a/create", `{"spec":{"name":"next life","hold":true}}`, "a5"))
		require.Equal(t, without(first), without(ask(create)), "while the next life is not done yet")
		require.Equal(t, resized, ask(resize))
		require.Equal(t, touched, ask(touch))
	})
	t.Run("Failed", func(t *testing.T) {
		create := start("/v1/gadgets/f/create", `{"spec":{"name":"lamp","hold":true}}`, "f1")
		b.engine.report(gadget, "default.f", "broke")
		failed := ask(create)
		require.Equal(t, map[string]any{"code": "Burnt", "message": "it smells", "currentState": "BROKEN", "allowedCommands": []any{"mend"}}, failed["error"])
		require.Equal(t, 200, b.post("/v1/gadgets/f/mend?settle=5s", "").StatusCode)
		require.Equal(t, failed, ask(create))
	})
	t.Run("Superseded", func(t *testing.T) {
		create := start("/v1/gadgets/s/create", `{"spec":{"name":"lamp","hold":true}}`, "s1")
		require.Equal(t, false, b.get(create).json(t)["done"])
		require.Equal(t, "DELETED", ask(start("/v1/gadgets/s/delete", "", "s2"))["response"].(map[string]any)["state"])
		for range 2 {
			op := ask(create)
			require.Equal(t, true, op["done"])
			require.Equal(t, "superseded", op["metadata"].(map[string]any)["step"])
			require.NotContains(t, op, "response")
			require.Equal(t, map[string]any{"code": "superseded", "message": "delete took its place while the gadget was CREATING", "currentState": "CREATING", "supersededBy": "s2"}, op["error"])
			require.Equal(t, 200, b.post("/v1/gadgets/s/create?settle=5s", `{"spec":{"name":"next life"}}`, "Idempotency-Key", "s3").StatusCode)
		}
		b.post(create+"/cancel", "").problem(t, 409, machines.CodeTransition)
	})
}
