package control

import "time"

// rate counts rows per second over the last minute.
type rate struct {
	start time.Time
	slots [60]int64
	at    int64 // second of the last count
}

func (m *rate) add(n int, now time.Time) {
	m.turn(now)
	m.slots[m.at%60] += int64(n)
}

// turn empties the seconds that have passed since the last count.
func (m *rate) turn(now time.Time) {
	s := now.Unix()
	for i := max(m.at+1, s-59); i <= s; i++ {
		m.slots[i%60] = 0
	}
	m.at = max(m.at, s)
}

func (m *rate) perSecond(now time.Time) float64 {
	m.turn(now)
	sum := int64(0)
	for _, n := range m.slots {
		sum += n
	}
	return float64(sum) / min(60, max(1, now.Sub(m.start).Seconds()))
}
