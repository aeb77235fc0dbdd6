package relay

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// Tables of another version are refused. Once they are removed and made again as the document says, all of their events are published, beside those of the old ones.
func TestTablesOfAnotherVersion(t *testing.T) {
	t.Parallel()
	inEachMode(t, func(t *testing.T, s *shop, mode outbox.Mode) {
		stop := s.run(s.relay(mode))
		for n := range 20 {
			s.add(fmt.Sprint("o-", n%3), n)
		}
		s.eventually(20)
		require.NoError(t, stop())
		s.exec(`update outbox_settings set version = version - 1`)
		err := s.relay(mode).Run(s.ctx)
		var fatal *PermanentError
		require.ErrorAs(t, err, &fatal)
		require.ErrorIs(t, err, outbox.ErrSchema)

		text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "outbox.md"))
		require.NoError(t, err)
		_, after, found := strings.Cut(string(text), "set search_path = public; -- or the schema of the outbox")
		require.True(t, found)
		statement, _, found := strings.Cut(after, "```")
		require.True(t, found)
		s.exec(statement)
		source := s.relay(mode).Config.Name
		require.NoError(t, s.outbox.Purge(t.Context(), jetstream.WithPurgeSubject("outbox-pos."+source+".>")))
		require.NoError(t, outbox.Init(s.ctx, s.dsn, "", outbox.Settings{Mode: mode}))
		for n := range 10 {
			s.add(fmt.Sprint("o-", n%3), n)
		}
		s.run(s.relay(mode))
		require.Eventually(t, func() bool { return s.stored() == 30 }, waitFor, tick)
		s.settled()
		require.Equal(t, 30, s.stored())
	})
}
