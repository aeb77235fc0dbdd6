package limits

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/bcc94042/instar/internal/simulation/seen"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/task"
)

// Derived says which repository is in another state than the stored values of its tasks make it, by the rules of [repository.Data.Derive]. One that is being deleted follows them no longer.
func Derived(all []*seen.Entity) string {
	for _, x := range all {
		v := x.Last()
		if x.Machine.Name != repository.Machine.Name || v == nil || v.Dropped || slices.Contains([]string{repository.Deleting, repository.Deleted}, v.State) {
			continue
		}
		var d repository.Data
		if err := json.Unmarshal(v.Data, &d); err != nil {
			return fmt.Sprintf("%s cannot be read: %v", x, err)
		}
		var counts repository.Counts
		types := map[string]bool{}
		for _, of := range all {
			id, mine := strings.CutPrefix(of.Key, x.Key+".")
			last := of.Last()
			if of.Machine.Name != task.Machine.Name || !mine || last == nil || last.Dropped || last.State == task.Deleted {
				continue
			}
			b, err := task.BriefOf(last.Data)
			if err != nil {
				return fmt.Sprintf("%s cannot be read: %v", of, err)
			}
			types[b.Type] = true
			counts.Add(&d.Spec, repository.Of{ID: id, Type: b.Type, State: last.State, Optional: b.Optional, HasResult: b.HasResult})
		}
		counts.Miss(&d.Spec, func(typ string) bool { return types[typ] })
		if want := d.Derive(&counts); want != v.State {
			return fmt.Sprintf("%s is %s, and its tasks make it %s", x, v.State, want)
		}
	}
	return ""
}
