package relay

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/streams/outbox"
)

// Two outboxes that read one slot, as programs let them that knew no claims: the one that is refused takes no events any more, nobody would
// read them.
func TestAnOutboxWhoseSlotAnotherOneHasTakesNothing(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	r, stop := s.begin(outbox.WAL, named)
	require.NoError(t, stop())
	require.NoError(t, outbox.Init(s.ctx, s.dsn, "other", outbox.Settings{Mode: outbox.WAL}))
	s.exec(`insert into other.outbox_stream (source, mode, shard, stream, subject, marker, cluster, slot) values ('second', 'wal', 0, '', '', 0, '', $1)`, r.Config.Slot)
	s.exec(`update other.outbox_settings set wal_slot = $1`, r.Config.Slot)
	var fatal *PermanentError
	err := s.relay(outbox.WAL, named, func(r *Relay) {
		r.Config.Name, r.Config.Schema, r.Config.Prefix, r.Config.Stream = "second", "other", "second", "SECOND"
	}).Run(s.ctx)
	require.ErrorAs(t, err, &fatal)
	require.ErrorContains(t, err, "is of the outbox in the schema public")
	_, err = s.pool.Exec(s.ctx, `select other.outbox_append('order', 'o-1', 'order.paid', '{}')`)
	require.ErrorContains(t, err, "OB002")
	require.Equal(t, 1, s.count(sqlReads))
}

// Postgres cannot read a log beyond a time in which the publication was not there. That is told once, with how to go on.
func TestAPublicationThatWasAway(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	r, stop := s.begin(outbox.WAL, named)
	s.add("o-1", 1)
	s.eventually(1)
	require.NoError(t, stop())
	s.exec(`drop publication ` + publication(r.Config))
	s.exec(`create table elsewhere as select 1 as n`)
	s.exec(`insert into elsewhere values (2)`)
	s.add("o-1", 2)
	s.exec(`create publication ` + publication(r.Config))
	s.add("o-1", 3)
	err := s.relay(outbox.WAL, named).Run(s.ctx)
	var fatal *PermanentError
	require.ErrorAs(t, err, &fatal)
	remedy := regexp.MustCompile(`select pg_replication_slot_advance\('\w+', '[0-9A-F/]+'\)`).FindString(err.Error())
	require.NotEmpty(t, remedy, err)
	require.ErrorContains(t, err, "nats stream purge OUTBOX --subject ")
	for _, err := range []error{s.change(outbox.Log), outbox.DropSlot(s.ctx, s.dsn, "", r.Config.Slot, false)} {
		require.ErrorIs(t, err, outbox.ErrRowsWait)
		require.ErrorContains(t, err, "nobody can read the slot")
	}
	s.add("o-1", 4)
	s.exec(remedy)
	require.NoError(t, s.outbox.Purge(s.ctx, withSubject("outbox-pos.>")))
	_, stop = s.begin(outbox.WAL, named)
	s.eventually(2)
	require.NoError(t, stop())
	require.Equal(t, "1 4", s.numbered("o-1"))
}

// Whoever claims a slot does it only while no other outbox has, and nobody's comment goes.
func TestAClaimIsOfTheFirst(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	require.NoError(t, outbox.Init(s.ctx, s.dsn, "other", outbox.Settings{Mode: outbox.WAL}))
	e := &walEngine{r: s.relay(outbox.WAL, named), pool: s.pool}
	e.r.Config.Schema = "public"
	name := publication(e.r.Config)
	s.exec(`create publication ` + name)
	claims := func(comment string) (after string, err error) {
		s.exec(`comment on publication ` + name + ` is '` + comment + `'`)
		err = e.claim(s.ctx, s.pool)
		require.NoError(t, s.pool.QueryRow(s.ctx, `select obj_description(oid, 'pg_publication') from pg_publication where pubname = $1`, name).Scan(&after))
		return after, err
	}
	mine, theirs := outbox.SlotClaim+"public", outbox.SlotClaim+"other"
	for _, free := range []string{"", mine, outbox.SlotClaim + "gone"} {
		after, err := claims(free)
		require.NoError(t, err)
		require.Equal(t, mine, after)
	}
	for _, taken := range []string{theirs, "of the operators"} {
		after, err := claims(taken)
		var fatal *PermanentError
		require.ErrorAs(t, err, &fatal)
		require.ErrorContains(t, err, "comment on publication")
		require.Equal(t, taken, after)
	}
}

// A slot that somebody has made before the first relay, for instance one that is kept over a failover, is read when it was claimed for the outbox.
func TestASlotThatWasMadeBefore(t *testing.T) {
	t.Parallel()
	s, named := openWAL(t, outbox.WAL)
	slot := s.relay(outbox.WAL, named).Config.Slot
	s.exec(`create publication ` + slot + `_none`)
	s.exec(`comment on publication ` + slot + `_none is 'replication slot of the outbox in schema public'`)
	s.exec(`select pg_create_logical_replication_slot($1, 'pgoutput')`, slot)
	_, stop := s.begin(outbox.WAL, named)
	s.add("o-1", 1)
	s.eventually(1)
	require.NoError(t, stop())
	require.Equal(t, 1, s.count(sqlSlots))
}
