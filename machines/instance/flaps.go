package instance

// flapLength is how many results the score looks at, as Nagios does.
const flapLength = 21

// Flaps remembers the hard state of an instance after each of its last 21 results that left it in one: of rise passes
// in a row, or of fall failures. The zero value remembers none; it is copied by assignment.
type Flaps struct {
	bits uint32 // the newest in bit 0; 1 passed
	n    uint8
}

// Add remembers a result; the oldest one is forgotten.
func (f *Flaps) Add(passed bool) {
	f.bits = f.bits << 1 & (1<<flapLength - 1)
	if passed {
		f.bits |= 1
	}
	f.n = min(f.n+1, flapLength)
}

// Last is the newest result; there is none in the zero value, which counts as a failure.
func (f *Flaps) Last() bool { return f.bits&1 != 0 }

// Len is how many results are remembered.
func (f *Flaps) Len() int { return int(f.n) }

// Score is how much the results change, in percent: each change among the last 21 results counts from 0.75 for the
// oldest to 1.25 for the newest, of 20 possible ones. Results that there are not yet are taken for no change.
func (f *Flaps) Score() float64 {
	const changes = flapLength - 1
	sum := 0.0
	for age := range int(f.n) - 1 { // 0 is the newest change
		if f.bits>>age&1 != f.bits>>(age+1)&1 {
			sum += 1.25 - 0.5*float64(age)/(changes-1)
		}
	}
	return sum * 100 / changes
}
