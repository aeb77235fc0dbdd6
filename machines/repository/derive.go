package repository

import "slices"

// Counts is what the tasks of a repository are like: the only thing that its state is derived from.
type Counts struct {
	Pending   int `json:"pending,omitempty"`
	Queued    int `json:"queued,omitempty"`
	Running   int `json:"running,omitempty"`
	Succeeded int `json:"succeeded,omitempty"`
	Failed    int `json:"failed,omitempty"`
	Canceled  int `json:"canceled,omitempty"`

	// Of the required ones. A required type without a task is one that is missing.
	Required        int `json:"required,omitempty"`
	RequiredDone    int `json:"requiredSucceeded,omitempty"`
	RequiredFailed  int `json:"requiredFailed,omitempty"`
	RequiredMissing int `json:"requiredMissing,omitempty"`

	Clone  string `json:"clone,omitempty"`  // state of the task that clones; it is in none of the other counts
	Cloned bool   `json:"cloned,omitempty"` // it has succeeded, and was not reset since
	Ending int    `json:"ending,omitempty"` // tasks whose documents are being erased
}

// Tasks is how many there are.
func (c *Counts) Tasks() int {
	n := c.Pending + c.Queued + c.Running + c.Succeeded + c.Failed + c.Canceled + c.Ending
	if c.Clone != "" {
		n++
	}
	return n
}

// CloneTask is the id of the task that clones, and its type.
const CloneTask = "clone"

// Of is one task as it is counted.
type Of struct {
	ID, Type, State string
	Optional        bool
	HasResult       bool
	Blocked         string // the task whose end has ended it
}

// Add counts one task of a repository.
func (c *Counts) Add(s *Spec, t Of) {
	if t.ID == CloneTask && s.URL != "" {
		c.Clone, c.Cloned = t.State, t.HasResult
		return
	}
	required := s.requires(t)
	if required {
		c.Required++
	}
	switch t.State {
	case "pending":
		c.Pending++
	case "queued":
		c.Queued++
	case "running":
		c.Running++
	case "succeeded":
		c.Succeeded++
		if required {
			c.RequiredDone++
		}
	case "failed":
		c.Failed++
		if required {
			c.RequiredFailed++
		}
	case "canceled":
		c.Canceled++
	default:
		c.Ending++
		if required {
			c.Required--
		}
	}
}

// Miss counts the required types that have no task, of those that were seen.
func (c *Counts) Miss(s *Spec, seen func(typ string) bool) {
	c.RequiredMissing = 0
	for i, typ := range s.Required {
		if !slices.Contains(s.Required[:i], typ) && !seen(typ) {
			c.RequiredMissing++
		}
	}
}

// requires: the types that the repository names, or every task that is not optional.
func (s *Spec) requires(t Of) bool {
	if len(s.Required) > 0 {
		return slices.Contains(s.Required, t.Type)
	}
	return !t.Optional
}

// Derive is the state of a repository whose tasks are like that. Before it is cloned, and while it is to be or is being cloned, only its clone counts: one that is asked for makes it pending
// until the task that clones is queued. Then:
//
//  1. any task queued or running: analyzing
//  2. else any required task failed (any at all, where it is strict): error
//  3. else there are required tasks, and all of them have succeeded: completed
//  4. else ready
func (d *Data) Derive(c *Counts) string {
	if d.URL != "" {
		switch {
		case c.Clone == "queued" || c.Clone == "running":
			return Cloning
		case d.Clone:
			return Pending
		case c.Clone == "failed":
			return Error
		case !c.Cloned:
			return Pending
		}
	}
	switch {
	case c.Queued+c.Running > 0:
		return Analyzing
	case c.RequiredFailed > 0 || d.Strict && c.Failed > 0:
		return Error
	case c.Required > 0 && c.RequiredDone == c.Required && c.RequiredMissing == 0:
		return Completed
	}
	return Ready
}

// After is what it keeps once whoever schedules has done what he says.
func (d Data) After(o *Observed, generation uint64) *Data {
	if o.Applied > d.Applied && o.Applied <= generation {
		d.Applied = o.Applied
	}
	d.Clone = d.Clone && max(o.Applied, o.CloneAsked) != generation
	return &d
}

// warnings are failures that are no error.
func warnings(s *Spec, c *Counts) int {
	if s.Strict {
		return 0
	}
	return c.Failed - c.RequiredFailed
}
