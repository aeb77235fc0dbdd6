package repository

import (
	"regexp"
	"strings"

	"github.com/bcc94042/instar/machines"
)

// Data is what a repository keeps.
type Data struct {
	Spec
	Tasks    *Counts `json:"tasks,omitempty"`    // as they were counted last
	Warnings int     `json:"warnings,omitempty"` // failures that are no error
	Paused   *Pause  `json:"paused,omitempty"`   // nothing of it is started
	Clone    bool    `json:"clone,omitempty"`    // it is to be cloned, also if it was, and the task that does is not queued yet
	Applied  uint64  `json:"applied,omitempty"`  // generation whose tasks were made, and whose clone was asked for
}

// Spec is what a repository is told.
type Spec struct {
	URL         string   `json:"url,omitempty" maxLength:"2048" example:"https://github.com/nats-io/nats.go" doc:"Where it is cloned from: a URL of the scheme https, http or file, or a path of the node; without one it only groups tasks"`
	Ref         string   `json:"ref,omitempty" maxLength:"255" doc:"Branch, tag or commit; the default branch by default"`
	Analyses    []string `json:"analyses,omitempty" maxItems:"64" doc:"Types of tasks that are made with it, each under its type as the name"`
	Required    []string `json:"required,omitempty" maxItems:"64" doc:"Types of tasks that must have succeeded; by default all tasks that are not optional"`
	Strict      bool     `json:"strict,omitempty" doc:"Any failure is an error, also of a task that is not required"`
	Concurrency int      `json:"concurrency,omitempty" minimum:"0" maximum:"10000" doc:"Tasks of it that run at a time; 1 by default"`
	Cap         int      `json:"cap,omitempty" minimum:"0" maximum:"100000000" doc:"Tasks of it that may be queued; more are refused with 429. 0 is no limit"`
	Weight      int      `json:"weight,omitempty" minimum:"0" maximum:"100" doc:"Share of the starts, relative to other repositories that wait; 1 by default"`
}

// Pause says that nothing is started.
type Pause struct {
	Reason string `json:"reason,omitempty"`
	By     string `json:"by,omitempty"`
}

// Limit is how many of its tasks run at a time.
func (s *Spec) Limit() int { return max(s.Concurrency, 1) }

// Share is its weight.
func (s *Spec) Share() int { return max(s.Weight, 1) }

// CreateBody is the body of create.
type CreateBody struct {
	Spec
	Labels map[string]string `json:"labels,omitempty" maxProperties:"32"`
}

// ConfigureBody is the body of configure.
type ConfigureBody struct {
	Spec
}

// PauseBody is the body of pause.
type PauseBody struct {
	Reason string `json:"reason,omitempty" maxLength:"256"`
}

// Observed is the body of observed.
type Observed struct {
	Counts
	CloneAsked uint64 `json:"cloneAsked,omitempty"` // generation whose clone was asked for, of which the counts know
	Applied    uint64 `json:"applied,omitempty"`    // generation whose tasks were made, too
}

// Validate checks what the types cannot say.
func (b *CreateBody) Validate() *machines.Refusal {
	var f machines.Findings
	b.Spec.check(&f)
	f.Labels(b.Labels, 32)
	return f.Refusal()
}

// Validate checks what the types cannot say.
func (b *ConfigureBody) Validate() *machines.Refusal {
	var f machines.Findings
	b.Spec.check(&f)
	return f.Refusal()
}

// Validate checks what the types cannot say.
func (b *PauseBody) Validate() *machines.Refusal {
	var f machines.Findings
	if len(b.Reason) > 256 {
		f.Add("reason", "is longer than 256 bytes")
	}
	return f.Refusal()
}

var refForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./+@=-]{0,254}$`)

func (s *Spec) check(f *machines.Findings) {
	checkURL(f, s.URL)
	if s.Ref != "" && (!refForm.MatchString(s.Ref) || strings.Contains(s.Ref, "..")) {
		f.Add("ref", "is not the name of a branch, a tag or a commit")
	}
	types(f, "analyses", s.Analyses)
	types(f, "required", s.Required)
	f.Between("concurrency", s.Concurrency, 0, 10_000)
	f.Between("cap", s.Cap, 0, 100_000_000)
	f.Between("weight", s.Weight, 0, 100)
}

// urlForm is scheme://[user[:password]@]host[:port]/path; of a file the host is empty.
var urlForm = regexp.MustCompile(`^(https?|file)://(?:([^@/]*)@)?([A-Za-z0-9.\[\]:-]*)(/[^\s]*)$`)

var (
	hostForm = regexp.MustCompile(`^(?:[A-Za-z0-9.][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?$`)
	noEscape = regexp.MustCompile(`%(?:[^0-9A-Fa-f]|$|[0-9A-Fa-f](?:[^0-9A-Fa-f]|$))`)
)

// checkURL refuses what no node could ever clone, what git would take for an option or a helper, and users and passwords: they do not belong into a store that everybody reads.
func checkURL(f *machines.Findings, text string) {
	parts := urlForm.FindStringSubmatch(text)
	switch {
	case text == "":
	case len(text) > 2048:
		f.Add("url", "is longer than 2048 bytes")
	case strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		f.Add("url", "contains a blank or a control character")
	case strings.HasPrefix(text, "/"):
	case parts == nil:
		f.Add("url", "must be a URL of the scheme https, http or file, or an absolute path of the node; nothing is cloned over ssh")
	case strings.Contains(strings.TrimSuffix(text, parts[4]), "@"):
		f.Add("url", "contains a user or a password; credentials belong into the configuration of the nodes")
	case parts[1] == "file" && parts[3] != "":
		f.Add("url", "names a host, but is a file")
	case parts[1] != "file" && !hostForm.MatchString(parts[3]):
		f.Add("url", "has no host, one that begins with a hyphen, or a port that is none")
	case parts[1] != "file" && strings.ContainsAny(parts[4], "?#"):
		f.Add("url", "has a query or a fragment")
	case noEscape.MatchString(parts[4]):
		f.Add("url", "has a percent sign that begins no escape")
	}
}

func types(f *machines.Findings, field string, list []string) {
	if len(list) > 64 {
		f.Add(field, "has more than 64")
	}
	for _, t := range list {
		if !machines.IsLabel(t) {
			f.Add(field, "%.64q is not the name of a type", t)
		} else if field == "analyses" && t == CloneTask {
			f.Add(field, "%s is the task that clones, which is made with a url", t)
		}
	}
}
