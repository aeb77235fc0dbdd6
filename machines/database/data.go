package database

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/session"
)

// Data is what a session keeps.
type Data struct {
	Request RequestBody `json:"request,omitzero"`
	session.Course
	Plan       *Plan      `json:"plan,omitempty"`
	Database   *Allocated `json:"database,omitempty"`
	Migrations int        `json:"migrations,omitempty"` // that the database has
	Progress   *Progress  `json:"progress,omitempty"`
	Verified   *Verified  `json:"verified,omitempty"` // the last comparison that has succeeded
	session.Trail
	RotatedAt time.Time `json:"rotatedAt,omitzero"`
	session.End
}

// What all sessions have.
type (
	Phase        = session.Phase
	Stage        = session.Stage
	RollbackBody = session.RollbackBody
	ResolveBody  = session.ResolveBody
	Entry        = session.Entry
	Action       = session.Action
	ActionResult = session.ActionResult
	Undone       = session.Results
)

// The phases.
const (
	Executing             = session.Executing
	RetryWait             = session.RetryWait
	Paused                = session.Paused
	WaitingApproval       = session.WaitingApproval
	Held                  = session.Held
	RollingBack           = session.RollingBack
	RollbackStuck         = session.RollbackStuck
	Rotating        Phase = "rotating"
)

// Modes of the copy.
const (
	ModeOffline  = "offline"
	ModeOnline   = "online"
	ModeSnapshot = "snapshot"
)

// RequestBody is the body of request.
type RequestBody struct {
	EnterpriseID string `json:"enterpriseId,omitempty" pattern:"^[A-Za-z0-9-]{1,56}$" doc:"The tenant, as its rows name it, if that is not in lower case; the tenant of the path when empty"`
	Region       string `json:"region,omitempty" maxLength:"63" doc:"Of the server; default when empty"`
	Spec         string `json:"dbSpec,omitempty" maxLength:"63" doc:"Size of the database; small when empty"`
	Mode         string `json:"mode,omitempty" enum:"offline,online,snapshot" doc:"Whether the tenant is written to during the copy; offline when empty"`
	OnFailure    string `json:"onFailure,omitempty" enum:"hold,rollback" doc:"What follows a failure; hold when empty. A failed switch always holds"`
	Approval     bool   `json:"approval,omitempty" doc:"Wait for approve after the plan"`
	AllowEmpty   bool   `json:"allowEmpty,omitempty" doc:"Move the tenant also if no table has a row of it"`
	DryRun       bool   `json:"dryRun,omitempty" doc:"Only plan; ends in cancelled, with the plan"`
	IdleSeconds  int    `json:"idleSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Without progress for so long, an attempt has failed; 0 is 1800"`
}

var enterprise = regexp.MustCompile(`^[A-Za-z0-9-]{1,56}$`)

// Validate checks what a caller that has no schema may get wrong.
func (b *RequestBody) Validate() *machines.Refusal {
	var found []machines.FieldError
	if b.EnterpriseID != "" && !enterprise.MatchString(b.EnterpriseID) {
		found = append(found, machines.FieldError{Field: "enterpriseId", Message: "needs 1 to 56 letters, digits and dashes"})
	}
	switch b.Mode {
	case "", ModeOffline, ModeOnline, ModeSnapshot:
	default:
		found = append(found, machines.FieldError{Field: "mode", Message: "is offline, online or snapshot"})
	}
	switch b.OnFailure {
	case "", "hold", "rollback":
	default:
		found = append(found, machines.FieldError{Field: "onFailure", Message: "is hold or rollback"})
	}
	if b.IdleSeconds < 0 || b.IdleSeconds > 86400 {
		found = append(found, machines.FieldError{Field: "idleSeconds", Message: "is out of range"})
	}
	if found == nil {
		return nil
	}
	return machines.Invalid(found...)
}

// For is the body for the tenant of a path, which it is about where it names none. It is refused when it names another one:
// a slip of the pen would move somebody else's data.
func (b *RequestBody) For(tenant string) (RequestBody, *machines.Refusal) {
	r := *b
	r.EnterpriseID = cmp.Or(b.EnterpriseID, tenant)
	if strings.ToLower(r.EnterpriseID) != tenant {
		return r, machines.Invalid(machines.FieldError{Field: "enterpriseId", Message: fmt.Sprintf("is %s, and the path names the tenant %s; it may differ in upper case only", r.EnterpriseID, tenant)})
	}
	return r, nil
}

// RevertBody is the body of revert.
type RevertBody struct {
	KeepWrites    bool `json:"keepWrites,omitempty" doc:"What was written since the switch is copied back, as far as the shared database has its tables and columns"`
	DiscardWrites bool `json:"discardWrites,omitempty" doc:"What was written since the switch does not come back with the tenant. It is kept in its own database until that is dropped"`
}

// What an undo does with the writes since the switch.
const (
	RefuseWrites  = session.RefuseWrites
	KeepWrites    = session.KeepWrites
	DiscardWrites = session.DiscardWrites
)

// Validate refuses both at once.
func (b *RevertBody) Validate() *machines.Refusal {
	if b.DiscardWrites && b.KeepWrites {
		return machines.Invalid(machines.FieldError{Field: "keepWrites", Message: "excludes discardWrites"})
	}
	return nil
}

// RetireBody is the body of deprovision.
type RetireBody struct {
	Tenant string `json:"tenant" doc:"The tenant again, as its rows name it: nothing is closed by mistake"`
}

// Rotated are the new credentials, sealed.
type Rotated struct {
	Credentials string `json:"credentials"`
	Epoch       int64  `json:"epoch"`
}

// Plan is what a session will do.
type Plan struct {
	Steps   []string         `json:"steps"`
	Rows    map[string]int64 `json:"rows"` // by table
	Total   int64            `json:"total"`
	Seconds float64          `json:"estimatedSeconds"`
	Notes   []string         `json:"notes,omitempty"`

	Resources []Resource `json:"resources,omitempty"` // in the order in which they are made

	Server            string `json:"server,omitempty"`            // that the database will be on
	CatalogueRevision uint64 `json:"catalogueRevision,omitempty"` // of the size, when the server was chosen
}

// Resource is what a session will make, or change.
type Resource struct {
	Kind string `json:"kind"` // template, database, role, slot, publication, subscription, trigger, runtime (the routing), or quarantine: where an undo puts the database until its grace period is over
	Name string `json:"name"` // {a,b} are several, and * is a number that is not known yet
	On   string `json:"on"`   // server NAME, shared database, or a table there
}

// Allocated is the database of the tenant. Its credentials are sealed.
type Allocated struct {
	DatabaseID  string `json:"databaseId"`
	Host        string `json:"host"`
	Name        string `json:"name"`
	Credentials string `json:"credentials,omitempty"`
}

// Migrated are the migrations that the database has.
type Migrated struct {
	Applied []string `json:"applied"`
}

// Progress is how far the copy is.
type Progress struct {
	Table string  `json:"table"`
	Rows  int64   `json:"migratedRows"`
	Total int64   `json:"totalRows"`            // of the tenant in the shared database, as they were counted
	Bytes int64   `json:"bytes,omitempty"`      // of what was copied; in mode online that replicated tables take in the tenant's database
	Rate  float64 `json:"rate,omitempty"`       // rows per second, over about the last ten seconds
	ETA   float64 `json:"etaSeconds,omitempty"` // 0 is unknown
	Lag   int64   `json:"lagBytes,omitempty"`   // in mode online
}

// Verified is the outcome of the comparison.
type Verified struct {
	Tables   int   `json:"tables"`
	Rows     int64 `json:"rows"`
	Repaired int   `json:"repaired,omitempty"` // tables of which ranges were copied again

	Discrepancies []Discrepancy `json:"discrepancies,omitempty"` // of those tables
	Fenced        []string      `json:"fenced,omitempty"`        // tables, as SQL writes them, that are closed to the tenant's writers since
}

// Discrepancy is a table that was not the same on both sides. Those that remain are in the details of the failure, see [Details].
type Discrepancy struct {
	Table    string `json:"table"`
	Type     string `json:"type"` // row_count_mismatch or checksum_mismatch
	Source   int64  `json:"sourceRows"`
	Target   int64  `json:"targetRows"`
	Ranges   []int  `json:"ranges,omitempty"` // the first 20, by their numbers in instar.range of the target
	Rows     int    `json:"rows,omitempty"`   // that differ, where single rows were compared (mode online)
	Repaired bool   `json:"repaired,omitempty"`
}

// Details are those of a failed comparison.
type Details struct {
	Discrepancies []Discrepancy `json:"discrepancies"` // the first 20
}

// Switched says where the routing points now.
type Switched struct {
	Epoch int64 `json:"epoch"`
}

// Task is the data of every effect.
type Task struct {
	Session  string      `json:"session"`
	Attempt  int         `json:"attempt"`
	Request  RequestBody `json:"request"`
	Server   string      `json:"server,omitempty"` // of the plan
	Database *Allocated  `json:"database,omitempty"`
	Ledger   []Entry     `json:"ledger,omitempty"`
	Fenced   []string    `json:"fenced,omitempty"`  // tables that have to be fenced when the routing is switched
	Actions  []Action    `json:"actions,omitempty"` // of an undo, in order
	Writes   string      `json:"writes,omitempty"`  // what an undo does with those since the switch
	Epoch    int64       `json:"epoch,omitempty"`   // of the routing, which the shared database has reached; 0 before the switch
}
