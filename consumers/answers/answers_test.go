package answers_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/bcc94042/instar/consumers/answers"
)

// What is kept is read as what was sent, byte for byte, whatever the sender's key.
func TestAnAnswerIsKeptAsItWasSent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		answer, err := json.Marshal(map[string]string{"text": rapid.String().Draw(t, "text")})
		require.NoError(t, err)
		answer = append(answer[:len(answer)-1], `,"as":"<it> & is"}`...)
		want := answers.Kept{ID: rapid.String().Draw(t, "id"), Hash: answers.Fingerprint("label", "", answer), Answer: answer}
		w := (&answers.Store{Bucket: "idempotency"}).Write("thing", "default.a", want)
		var got answers.Kept
		require.NoError(t, json.Unmarshal(w.Msg.Data, &got))
		require.Equal(t, want, got)
	})
}
