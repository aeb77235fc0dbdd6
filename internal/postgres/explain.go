package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Step is a step of a plan that was executed.
type Step struct {
	Type     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Rechecks float64 `json:"Rows Removed by Index Recheck"`
	Plans    []Step  `json:"Plans"`
}

// Walk calls do for the step and all below it.
func (s *Step) Walk(do func(*Step)) {
	do(s)
	for i := range s.Plans {
		s.Plans[i].Walk(do)
	}
}

// Touched is how many rows the step itself has read, those that it then left out included.
func (s *Step) Touched() float64 { return s.Loops * (s.Rows + s.Filtered + s.Rechecks) }

// Explain executes a query as a prepared one, undoes it, and returns what it did. Parameters are SQL. mode is a plan_cache_mode:
// force_custom_plan, or force_generic_plan for the plan that is made without the parameters.
func Explain(ctx context.Context, conn *pgx.Conn, mode, query string, args ...string) (*Step, error) {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	execute := "explain (analyze, format json) execute explained"
	if len(args) > 0 {
		values := make([]string, len(args))
		for i, a := range args { // no subqueries in parameters of execute
			values[i] = a
			if strings.Contains(a, "select ") {
				if err := tx.QueryRow(ctx, "select quote_literal(("+a+")::text)").Scan(&values[i]); err != nil {
					return nil, fmt.Errorf("%s: %w", a, err)
				}
			}
		}
		execute += "(" + strings.Join(values, ", ") + ")"
	}
	var text []byte
	for _, statement := range []string{"set local plan_cache_mode = " + mode, "prepare explained as " + query} {
		if _, err := tx.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
			return nil, fmt.Errorf("%s: %w", statement, err)
		}
	}
	if err := tx.QueryRow(ctx, execute, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		return nil, fmt.Errorf("%s: %w", execute, err)
	}
	if _, err := tx.Exec(ctx, "deallocate explained", pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, err
	}
	var plans []struct{ Plan Step }
	if err := json.Unmarshal(text, &plans); err != nil {
		return nil, err
	}
	return &plans[0].Plan, nil
}
