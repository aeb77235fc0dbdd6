package streams

import "strings"

// Classes of events, and of the records of an audit (package audit).
var Classes = []string{"state", "resource", "error", "progress"}

// AuditStream is the stream of a class of records.
func (n Names) AuditStream(class string) string { return n.Stream("AUDIT_" + strings.ToUpper(class)) }

// Audit is the subject of records about an entity; the key may be that of a filter.
func (n Names) Audit(class, machine, key string) string { return n.join("audit", class, machine, key) }

// Audits matches all records of a class.
func (n Names) Audits(class string) string { return n.join("audit", class, ">") }
