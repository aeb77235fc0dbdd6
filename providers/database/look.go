package database

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/admin"
	"github.com/bcc94042/instar/providers/database/cutover"
	"github.com/bcc94042/instar/providers/database/mover"
	"github.com/bcc94042/instar/providers/database/online"
	"github.com/bcc94042/instar/providers/database/pg"
)

// lookEvery is the time between two reports of progress.
const lookEvery = 2 * time.Second

// Look finds how far the copy of a session is, from what its target has recorded. It is news when ranges were copied since the last report; a copy that stands is
// none, so that the idle limit tells of it.
func (p *Provider) Look(ctx context.Context, e *machines.Entity) (machines.Finding, error) {
	d, ok := e.Data.(*machine.Data)
	if !ok || d.Database == nil {
		return machines.Finding{}, nil
	}
	if next := d.LastProgressAt.Add(lookEvery); time.Now().Before(next) {
		return machines.Finding{Until: next}, nil
	}
	kept := &pg.Kept{Idle: &p.idle}
	defer kept.Close()
	target := p.Server.Address(d.Database.Name, "instar look")
	target.Kept = kept
	at, _, err := mover.Look(ctx, target, sessionOf(e.Machine, e.Key()))
	if pg.NotSetUp(err) { // the copy has not begun
		return machines.Finding{Until: time.Now().Add(time.Second)}, nil
	}
	if err != nil {
		return machines.Finding{}, err
	}
	if d.Request.Mode == machine.ModeOnline {
		return p.replicated(ctx, e, target, at)
	}
	seen := progress(at)
	if d.Progress != nil && seen.Rows == d.Progress.Rows && seen.Bytes == d.Progress.Bytes || d.Progress == nil && seen.Rows == 0 {
		return machines.Finding{Until: time.Now().Add(time.Second)}, nil
	}
	return machines.Finding{Input: machine.ReportProgressed, Data: seen}, nil
}

func progress(p mover.Progress) machine.Progress {
	return machine.Progress{Table: p.Table, Rows: p.Rows, Total: p.Total, Bytes: p.Bytes, Rate: p.Rate, ETA: p.ETA.Seconds()}
}

// memory is how far replications were when that was told last, by session and attempt. What nobody has asked about for a minute is of a copy that has ended, and is forgotten. The zero value is ready.
type memory struct {
	mu  sync.Mutex
	all map[string]*remembered
}

// remembered is how far one was.
type remembered struct {
	howFar
	asked time.Time
}

type howFar struct {
	whole            int   // tables
	rows, bytes, lag int64 // of all tables
	rate             float64
	at               time.Time
}

func (m *memory) of(session string, now time.Time) (t howFar, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known := m.all[session]
	if !known {
		return t, false
	}
	r.asked = now
	return r.howFar, true
}

func (m *memory) keep(session string, t howFar, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.all, func(_ string, r *remembered) bool { return now.Sub(r.asked) > time.Minute })
	if m.all == nil {
		m.all = map[string]*remembered{}
	}
	m.all[session] = &remembered{t, now}
}

// after is what is to be told after something was, and whether it is news. The rate is of all rows, whoever has copied them.
func (t howFar) after(before howFar) (howFar, bool) {
	t.rate = before.rate
	if t.rows <= before.rows && t.bytes <= before.bytes && t.whole <= before.whole && t.lag >= before.lag {
		return t, false
	}
	t.rate = mover.Smooth(before.rate, max(t.rows-before.rows, 0), max(t.at.Sub(before.at), time.Millisecond))
	t.rows, t.bytes = max(t.rows, before.rows), max(t.bytes, before.bytes) // rows of a table may be fewer than were counted when it is whole
	return t, true
}

// replicated is the same in mode online, where Postgres copies most of the rows: it is news that a table is whole, that more rows of one were read, and that the target has come
// nearer. What this server has told is in memory; one that begins tells again.
func (p *Provider) replicated(ctx context.Context, e *machines.Entity, target pg.Address, here mover.Progress) (machines.Finding, error) {
	session := sessionOf(e.Machine, e.Key())
	attempt := fmt.Sprint(session, " ", e.Data.(*machine.Data).AttemptAt.UnixNano()) // what an earlier one has copied says nothing of the pace of this one
	link := &online.Link{Source: p.Source, Target: target, Session: session}
	status, err := link.Status(ctx)
	if err != nil || status.Tables == 0 { // the slot or the subscription is not there yet
		return machines.Finding{Until: time.Now().Add(time.Second)}, nil
	}
	whole, err := mover.Planned(ctx, target, session, status.Whole)
	if err != nil {
		return machines.Finding{}, err
	}
	there := whole + status.Copying
	now := howFar{whole: len(status.Whole), rows: here.Rows + there, bytes: here.Bytes + status.Bytes, lag: status.Lag, at: time.Now()}
	if before, known := p.told.of(attempt, now.at); known {
		var news bool
		if now, news = now.after(before); !news {
			return machines.Finding{Until: now.at.Add(time.Second)}, nil
		}
	}
	p.told.keep(attempt, now, now.at)
	seen := progress(here.With(now.rows-here.Rows, now.bytes-here.Bytes, now.rate))
	seen.Lag = now.lag
	return machines.Finding{Input: machine.ReportProgressed, Data: seen}, nil
}

// Sweep drops the databases whose grace period is over, and the templates of former migrations that were not used for as long, and returns their names. It also ends what is left of the replication to tenants that are in theirs, and that of
// sessions which have ended or are not known: a slot that nobody reads keeps the log of the source. What is left of fences that were lifted goes, too.
func (p *Provider) Sweep(ctx context.Context) ([]string, error) {
	gone, err := p.Server.Sweep(ctx, time.Now())
	if pg.NotSetUp(err) { // nothing was made there yet
		return nil, nil
	}
	hash, unread := p.Migrations.Hash()
	if unread == nil {
		var templates []string
		templates, unread = p.Server.SweepTemplates(ctx, admin.TemplateName(hash), time.Now().Add(-p.grace()))
		gone = append(gone, templates...)
	}
	return gone, errors.Join(err, unread, p.unlink(ctx), (&cutover.Source{Address: p.shared(nil)}).Sweep(ctx))
}

// grace is how long what is not needed any more is kept.
func (p *Provider) grace() time.Duration {
	if p.Grace <= 0 {
		return 7 * 24 * time.Hour
	}
	return p.Grace
}

// unlink removes the replication of sessions whose routing leads to their databases on this server.
func (p *Provider) unlink(ctx context.Context) error {
	kept := &pg.Kept{Idle: &p.idle}
	defer kept.Close()
	source := p.shared(kept)
	conn, err := pg.Connect(ctx, source)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	defer pg.Close(conn)
	type own struct{ Session, Database string }
	var list []own
	strays := online.Strays(ctx, source, func(ctx context.Context, tx pgx.Tx, alone bool) (sessions []string, err error) {
		if alone { // whoever begins waits, and so does this, not for long: others queue behind it
			if err := pg.Brief(ctx, tx, 5*time.Second); err != nil {
				return nil, err
			}
			if _, err := tx.Exec(ctx, `set local lock_timeout = '5s'; lock table instar.attempt in share mode`); err != nil {
				return nil, err
			}
		}
		err = tx.QueryRow(ctx, `select coalesce(array_agg(session), '{}') from instar.attempt where not ended`).Scan(&sessions)
		return sessions, err
	})
	if pg.NotSetUp(strays) {
		return nil
	}
	rows, err := conn.Query(ctx, `select a.session, r.database_name from instar.attempt a join public.tenant_runtime r on `+cutover.SameTenant("public.tenant_runtime")+` where r.database_id = $1 || '/' || r.database_name`, p.Server.Name)
	if err == nil {
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[own])
	}
	if pg.NotSetUp(err) {
		return nil
	}
	errs := []error{err, strays}
	for _, o := range list {
		link := &online.Link{Source: source, Target: p.Server.Address(o.Database, ""), Session: o.Session}
		left, err := link.Left(ctx)
		if err == nil && left {
			err = link.Remove(ctx)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
