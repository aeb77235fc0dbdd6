package tenantdb

import "time"

// Once repeats what is acknowledged, as if it were that time.
func (d *DB) Once(now time.Time) { d.once(now) }

// Kept is how many tenants are remembered.
func (d *DB) Kept() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.pools) + len(d.saying)
}

// Gone is how many tenants are remembered that have no pool.
func (d *DB) Gone() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.gone)
}
