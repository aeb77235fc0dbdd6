package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Ended is how long what has ended is kept whole. It is never dropped where the lists are to show it for ever.
type Ended struct {
	DropAfter time.Duration            `koanf:"dropAfter"` // 0 is never
	Machines  map[string]time.Duration `koanf:"machines"`  // those of single machines, by name
}

// DropAfter is how long after its end the value of an entity of a machine is dropped; 0 is never.
func (c Config) DropAfter(machine string) time.Duration {
	if c.Index.EndedFor == 0 {
		return 0
	}
	if d, set := c.Ended.Machines[machine]; set {
		return d
	}
	return c.Ended.DropAfter
}

func (c Config) validateEnded() error {
	var errs []error
	least := max(c.Index.EndedFor, c.IdempotencyWindow)
	check := func(key string, d time.Duration) {
		if d != 0 && d < least {
			errs = append(errs, fmt.Errorf("%s: %s is less than %s, for which ended entities are listed (index.endedFor) and answers kept (idempotencyWindow); 0s keeps values for ever", key, d, least))
		}
	}
	check("ended.dropAfter", c.Ended.DropAfter)
	for _, machine := range slices.Sorted(maps.Keys(c.Ended.Machines)) {
		check("ended.machines."+machine, c.Ended.Machines[machine])
	}
	return errors.Join(errs...)
}
