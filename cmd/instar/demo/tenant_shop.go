package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/internal/wait"
)

// tenantShop is the application of all tenants: each writes orders with their lines, wherever its data is at the moment.
type tenantShop struct {
	db *tenantdb.DB

	mu      sync.Mutex
	tried   map[string]map[string]bool // ids of orders, by tenant
	kept    map[string]map[string]bool // those that were acknowledged
	refused int                        // by the fence; they were repeated
	longest map[string]time.Duration   // between two orders of a tenant
	worst   map[string]int             // the act in which that was
	act     int                        // that goes on
	last    map[string]time.Time
	errs    error
}

func newTenantShop(db *tenantdb.DB) *tenantShop {
	return &tenantShop{db: db, tried: map[string]map[string]bool{}, kept: map[string]map[string]bool{}, longest: map[string]time.Duration{}, worst: map[string]int{}, last: map[string]time.Time{}}
}

// sell writes orders of a tenant until ctx ends.
func (s *tenantShop) sell(ctx context.Context, tenant string, pace time.Duration) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		id := uuid.NewString()
		s.note(s.tried, tenant, id)
		if err := s.persist(context.WithoutCancel(ctx), tenant, id); err != nil {
			s.mu.Lock()
			s.errs = errors.Join(s.errs, fmt.Errorf("tenant %s: %w", tenant, err))
			s.mu.Unlock()
			return
		}
		s.note(s.kept, tenant, id)
		s.mu.Lock()
		if last := s.last[tenant]; !last.IsZero() && time.Since(last) > s.longest[tenant] {
			s.longest[tenant], s.worst[tenant] = time.Since(last), s.act
		}
		s.last[tenant] = time.Now()
		s.mu.Unlock()
	}
}

// persist repeats an order until it is known to be stored: the fence refuses it while the tenant is switched, and a connection may end with the database that the tenant has left.
func (s *tenantShop) persist(ctx context.Context, tenant, id string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := s.order(ctx, tenant, id)
		if err == nil {
			return nil
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "25006" {
			s.mu.Lock()
			s.refused++
			s.mu.Unlock()
		}
		if wait.Pause(ctx, 5*time.Millisecond) != nil {
			return err
		}
	}
}

func (s *tenantShop) order(ctx context.Context, tenant, id string) error {
	conn, err := s.db.Acquire(ctx, tenant)
	if err != nil {
		return err
	}
	defer conn.Release()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue(`insert into public.orders (id, enterprise_id) values ($1, $2) on conflict do nothing`, id, tenant)
		b.Queue(`insert into public.lines select $1, n from generate_series(1, 2) n on conflict do nothing`, id)
		return tx.SendBatch(ctx, b).Close()
	})
}

func (s *tenantShop) note(in map[string]map[string]bool, tenant, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in[tenant] == nil {
		in[tenant] = map[string]bool{}
	}
	in[tenant][id] = true
}

func (s *tenantShop) sold() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ids := range s.kept {
		n += len(ids)
	}
	return n
}

func (s *tenantShop) soldBy(tenant string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept[tenant])
}

// begin says which act goes on.
func (s *tenantShop) begin(act int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.act = act
}

// account compares what a tenant has with what was acknowledged: nothing is missing, nothing is there that nobody wrote, and each order has its lines.
func (s *tenantShop) account(ctx context.Context, tenant string, filled int) (rows int, err error) {
	conn, err := s.db.Acquire(ctx, tenant)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	found, err := conn.Query(ctx, `select o.id::text, (select count(*) from public.lines l where l.order_id = o.id) from public.orders o where o.enterprise_id = $1 and not o.filled`, tenant)
	if err != nil {
		return 0, err
	}
	missing, foreign, torn := len(s.kept[tenant]), 0, 0
	var id string
	var lines int
	_, err = pgx.ForEachRow(found, []any{&id, &lines}, func() error {
		rows++
		if s.kept[tenant][id] {
			missing--
		}
		if !s.tried[tenant][id] {
			foreign++
		}
		if lines != 2 {
			torn++
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	var before int
	if err := conn.QueryRow(ctx, `select count(*) from public.orders o join public.lines l on l.order_id = o.id where o.enterprise_id = $1 and o.filled`, tenant).Scan(&before); err != nil {
		return 0, err
	}
	if missing != 0 || foreign != 0 || torn != 0 || before != 2*filled {
		return 0, fmt.Errorf("tenant %s: %d orders are missing, %d are nobody's, %d lack lines, and of %d lines from before there are %d", tenant, missing, foreign, torn, 2*filled, before)
	}
	return 3*rows + 3*filled, nil
}
