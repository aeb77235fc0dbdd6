package online

import "time"

// Refusals asks a second at a time whether a copy is refused, and returns after how many it is: 0 is never.
func Refusals(patience time.Duration, tables func(second int) (whole int, rows, errors int64), seconds int) int {
	r, began := refusals{patience: patience}, time.Now()
	for n := range seconds {
		if whole, rows, errors := tables(n); r.many(began.Add(time.Duration(n)*time.Second), whole, rows, errors) {
			return n
		}
	}
	return 0
}
