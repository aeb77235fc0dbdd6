package main

import (
	"fmt"
	"time"

	"github.com/bcc94042/instar/bench/internal/rig"
)

// row is what is measured once per run.
type row struct {
	name, way string
	clients   int
}

// figures are those of one row.
type figures struct {
	took      time.Duration
	latencies []time.Duration // sorted
	cpu       cpu             // for a transition
}

// line is what is printed of them.
type line struct {
	rate     float64
	p50, p99 time.Duration
	cpu      cpu
}

// table keeps the rows in the order in which they were measured first.
type table struct {
	rows  []row
	lines map[row][]line
}

func (t *table) add(r row, f figures) {
	if t.lines == nil {
		t.lines = map[row][]line{}
	}
	if t.lines[r] == nil {
		t.rows = append(t.rows, r)
	}
	l, n := line{cpu: f.cpu}, len(f.latencies)
	if n > 0 { // a short row may have seen nothing but a stall
		l.rate, l.p50, l.p99 = float64(n)/f.took.Seconds(), f.latencies[n/2], f.latencies[n*99/100]
	}
	t.lines[r] = append(t.lines[r], l)
}

// print shows the median of each figure; against another version, how many times its rate and its CPU time, as the median of the pairs.
func (t *table) print() {
	fmt.Printf("  %-8s %-8s %7s %11s %10s %10s %10s %10s %10s\n", "", "", "clients", "rate", "p50", "p99", "server us", "handler us", "load us")
	for _, r := range t.rows {
		of := func(get func(line) float64) float64 { return rig.Median(t.lines[r], get) }
		micros := func(get func(line) time.Duration) float64 {
			return of(func(l line) float64 { return float64(get(l)) / 1000 })
		}
		handler := ""
		if us := micros(func(l line) time.Duration { return l.cpu[1] }); us > 0 {
			handler = fmt.Sprintf("%.0f", us)
		}
		fmt.Printf("  %-8s %-8s %7d %9.0f/s %7.2f ms %7.2f ms %10.0f %10s %10.0f", r.name, r.way, r.clients, of(func(l line) float64 { return l.rate }),
			micros(func(l line) time.Duration { return l.p50 })/1000, micros(func(l line) time.Duration { return l.p99 })/1000,
			micros(func(l line) time.Duration { return l.cpu[0] }), handler, micros(func(l line) time.Duration { return l.cpu[2] }))
		if other := t.lines[row{against, r.way, r.clients}]; r.name == ours && other != nil {
			pairs := make([][2]line, len(other))
			for i := range pairs {
				pairs[i] = [2]line{t.lines[r][i], other[i]}
			}
			fmt.Printf("   of against: rate %.2f, CPU %.2f", rig.Median(pairs, func(p [2]line) float64 { return p[0].rate / p[1].rate }),
				rig.Median(pairs, func(p [2]line) float64 { return float64(p[0].cpu[0]) / float64(p[1].cpu[0]) }))
		}
		fmt.Println()
	}
}
