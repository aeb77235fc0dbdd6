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

// sessionsFor is how long sessions of tenants are kept at least, unless they are named themselves: who asks why a tenant is where it is asks late.
const sessionsFor = 90 * 24 * time.Hour

// DropAfter is how long after its end the value of an entity of a machine is dropped; 0 is never.
func (c Config) DropAfter(machine string) time.Duration {
	if c.Index.EndedFor == 0 {
		return 0
	}
	if d, set := c.Ended.Machines[machine]; set {
		return d
	}
	if d := c.Ended.DropAfter; d != 0 && slices.Contains([]string{"database_provisioning", "instance_provisioning"}, machine) {
		return max(d, sessionsFor)
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
