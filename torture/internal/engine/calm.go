package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/outbox"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/relays"
	"github.com/bcc94042/instar/torture/internal/rig"
)

const calmInstances = 1000

// gauges are what is looked at again and again. At the end each may be half as much again as at the start, a level a fifth, and the slack.
var gauges = []gauge{
	{name: "messages stored between two looks", always: true, slack: 5},
	{name: "leases renewed and disks tried per minute", rate: true, slack: 10},
	{name: "KiB in streams", slack: 64},
	{name: "seconds of CPU per minute", rate: true, slack: 1},
	{name: "MiB of memory", slack: 32},
	{name: "open files", slack: 10},
	{name: "transactions of Postgres per minute", rate: true, slack: 60},
	{name: "KiB of write-ahead log per minute", rate: true, slack: 256},
}

// gauge is one thing that should not grow while nothing happens.
type gauge struct {
	name   string
	rate   bool // it is counted: what was added per minute is what matters
	always bool // it is counted as well, and may never be more: one transition, such as that of a relay, is three messages
	slack  float64
}

// Calm leaves a server alone with instances that beat, a protection that is held and an outbox without events, and looks at
// what it stores and spends: as little at the end as at the start.
func Calm(t *part.T) error {
	quiet, err := newStill(t)
	if err != nil {
		return err
	}
	every := time.Duration(t.Amount(20, 60)) * time.Second
	looks, grew := [][]float64{}, []map[string]uint64{}
	for range t.Amount(3, 60) + 1 {
		if len(looks) > 0 && !wait.For(t.Ctx, every) {
			return t.Ctx.Err()
		}
		now, err := quiet.look(t.Ctx)
		if err != nil {
			return err
		}
		looks, grew = append(looks, now), append(grew, quiet.grew)
	}
	for i, g := range gauges {
		grown(t, g, series(g, looks, i, every.Minutes()))
	}
	for n, streams := range grew[1:] {
		if len(streams) > 0 {
			t.Say("stored from %s to %s: %v", time.Duration(n)*every, time.Duration(n+1)*every, streams)
		}
	}
	t.Say("%s with %d instances, a protection and an outbox", time.Duration(len(looks)-1)*every, calmInstances)
	return nil
}

// series are the values of a gauge between two looks.
func series(g gauge, looks [][]float64, i int, minutes float64) (list []float64) {
	for n := 1; n < len(looks); n++ {
		v := looks[n][i]
		if g.rate || g.always {
			v -= looks[n-1][i]
		}
		if g.rate {
			v /= minutes
		}
		list = append(list, v)
	}
	return list
}

// grown says how a gauge went, and whether it is more in the last sixth than in the first.
func grown(t *part.T, g gauge, values []float64) {
	some := max(len(values)/6, 1)
	first, last, most := median(values[:some]), median(values[len(values)-some:]), slices.Max(values)
	factor, judged := 1.2, last
	if g.rate {
		factor = 1.5
	}
	if g.always {
		judged = most
	}
	if judged > factor*first+g.slack {
		t.Violations++
		t.Say("VIOLATION calm: %s grow: %.1f", g.name, values)
	}
	t.Say("%s: %.1f at the start, %.1f at the end, %.1f at most", g.name, first, last, most)
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }

// still is a server that nobody commands.
type still struct {
	instar *rig.Instar
	reader *rig.Reader
	db     *pgx.Conn
	before map[string]uint64 // last sequences of the streams, by name
	grew   map[string]uint64 // by how much, since the look before
}

// still starts it, and waits until the deadlines of what was registered, a minute each, have fired and are outdated.
func newStill(t *part.T) (*still, error) {
	pg, err := relays.Postgres(t, nil)
	if err != nil {
		return nil, err
	}
	dsn := pg.DSN("postgres")
	if err := outbox.Init(t.Ctx, dsn, "", outbox.Settings{}); err != nil {
		return nil, err
	}
	s := &still{}
	if s.db, err = pgx.Connect(t.Ctx, dsn); err != nil {
		return nil, err
	}
	t.OnEnd(func() { _ = s.db.Close(context.Background()) })
	if s.instar, err = t.Serving("data", "", "--durability", "interval", "--outbox-dsn", dsn); err != nil {
		return nil, err
	}
	if s.reader, err = t.Reader(s.instar.NATSURL()); err != nil {
		return nil, err
	}
	for n := range calmInstances {
		if err := s.tell(t.Ctx, "instance", fmt.Sprintf("default.calm.i-%d", n), "register", `{"nodeAddress":"127.0.0.1:9","check":{"type":"ttl","ttl":"15s"}}`); err != nil {
			return nil, err
		}
	}
	if err := s.tell(t.Ctx, "preservation", "default.calm.none", "hold", `{}`); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(t.Ctx)
	t.OnEnd(stop)
	go beat(ctx, s.reader.NC())
	if !wait.For(t.Ctx, 75*time.Second) {
		return nil, t.Ctx.Err()
	}
	quiet := time.Now()
	err = rig.Until(t.Ctx, 90*time.Second, "nothing is stored for ten seconds", func() bool {
		if _, err := s.look(t.Ctx); err != nil || len(s.grew) > 0 {
			quiet = time.Now()
		}
		return time.Since(quiet) > 10*time.Second || !wait.For(t.Ctx, time.Second)
	})
	if err != nil {
		return nil, fmt.Errorf("%w (it stores into %v)", err, s.grew)
	}
	return s, nil
}

func (s *still) tell(ctx context.Context, machine, key, command, body string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := s.reader.JS().PublishMsg(ctx, &nats.Msg{
		Subject: "instar.cmd." + machine + "." + key + "." + command, Data: []byte(body),
		Header: nats.Header{nats.MsgIdHdr: {machine + "/" + key + "/" + nuid.Next()}},
	})
	return err
}

// beat is the heartbeat of all instances but the last one, which is never heard.
func beat(ctx context.Context, nc *nats.Conn) {
	for wait.For(ctx, 5*time.Second) {
		for n := range calmInstances - 1 {
			_ = nc.Publish(fmt.Sprintf("instar.hb.default.calm.i-%d", n), nil) // one that is missed is made up for by the next
		}
	}
}

// look reads all gauges, in their order.
func (s *still) look(ctx context.Context) ([]float64, error) {
	var stored, renewed, size float64
	last := map[string]uint64{}
	owners := "KV_" + streams.Names{}.Bucket(streams.OwnersBucket)
	list := s.reader.JS().ListStreams(ctx)
	for info := range list.Info() {
		if info.Config.Name == owners || info.Config.Name == streams.ProbeStream {
			renewed += float64(info.State.LastSeq)
		} else {
			stored += float64(info.State.LastSeq)
			last[info.Config.Name] = info.State.LastSeq
		}
		size += float64(info.State.Bytes) / 1024
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("cannot look at the streams: %w", err)
	}
	s.grew = map[string]uint64{}
	for name, seq := range last {
		if more := seq - s.before[name]; more > 0 {
			s.grew[name] = more
		}
	}
	s.before = last
	cpu, memory, files, err := spent(s.instar.Pid())
	if err != nil {
		return nil, fmt.Errorf("cannot look at the process: %w", err)
	}
	var transactions, wal float64
	err = s.db.QueryRow(ctx, `select xact_commit + xact_rollback, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::float8 / 1024
		from pg_stat_database where datname = current_database()`).Scan(&transactions, &wal)
	return []float64{stored, renewed, size, cpu, memory, files, transactions, wal}, err
}

// spent is how many seconds of CPU a process has spent, and what it has of memory (MiB) and of open files.
func spent(pid int) (cpu, memory, files float64, err error) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return 0, 0, 0, err
	}
	open, err := os.ReadDir(dir + "fd")
	if err != nil {
		return 0, 0, 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, errUser := strconv.ParseFloat(fields[11], 64)
	system, errSystem := strconv.ParseFloat(fields[12], 64)
	pages, errPages := strconv.ParseFloat(fields[21], 64)
	return (user + system) / 100, pages * float64(os.Getpagesize()) / (1 << 20), float64(len(open)), errors.Join(errUser, errSystem, errPages)
}
