package platform

import (
	"regexp"
	"strings"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
)

// Where a tenant's data comes from.
const (
	DataNew    = "new"
	DataShared = "shared"
)

// RequestBody is the body of request.
type RequestBody struct {
	EnterpriseID string `json:"enterpriseId,omitempty" pattern:"^[A-Za-z0-9-]{1,56}$" doc:"The tenant, as its rows name it, if that is not in lower case; the tenant of the path when empty"`
	Slug         string `json:"preferredSlug,omitempty" maxLength:"40" doc:"First label of the primary domain; made from the tenant when empty"`
	Region       string `json:"region,omitempty" maxLength:"63" doc:"default when empty"`
	Spec         string `json:"instanceSpec,omitempty" maxLength:"63" doc:"Size of the instance; small when empty"`
	DBSpec       string `json:"dbSpec,omitempty" maxLength:"63" doc:"Size of the database; small when empty"`
	StorageBytes int64  `json:"storageBytes,omitempty" minimum:"0" doc:"Quota of the bucket; 0 is that of the instance's size"`
	Channel      string `json:"channel,omitempty" maxLength:"63" doc:"Release channel; stable when empty. The plan pins its version"`
	Version      string `json:"version,omitempty" maxLength:"128" doc:"Instead of that of the channel"`
	CustomDomain string `json:"customDomain,omitempty" maxLength:"253" doc:"Asked for beside the primary domain, and not waited for"`
	Data         string `json:"data,omitempty" enum:"new,shared" doc:"new starts empty, shared moves the rows of the tenant out of the shared database; new when empty"`
	Mode         string `json:"mode,omitempty" enum:"offline,online,snapshot" doc:"Whether the tenant is written to while its rows are moved; offline when empty"`
	OnFailure    string `json:"onFailure,omitempty" enum:"hold,rollback" doc:"What follows a failure; hold when empty. A failed switch always holds"`
	Approval     bool   `json:"approval,omitempty" doc:"Wait for approve after the plan, also if the policy does not ask for it"`
	DryRun       bool   `json:"dryRun,omitempty" doc:"Only plan; ends in cancelled, with the plan"`
	IdleSeconds  int    `json:"idleSeconds,omitempty" minimum:"0" maximum:"86400" doc:"Without progress for so long, an attempt has failed; 0 is 1800"`
}

var (
	hostForm    = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
	versionForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,127}$`)
)

// Validate checks what a caller that has no schema may get wrong.
func (b *RequestBody) Validate() *machines.Refusal {
	var f machines.Findings
	if r := b.database(); r.Validate() != nil {
		for _, e := range r.Validate().Fields {
			f.Add(e.Field, "%s", e.Message)
		}
	}
	if b.Slug != "" && (len(b.Slug) > maxSlug || !machines.IsLabel(b.Slug)) {
		f.Add("preferredSlug", "is not a DNS label of at most %d characters", maxSlug)
	}
	if b.CustomDomain != "" && (len(b.CustomDomain) > 253 || !hostForm.MatchString(b.CustomDomain)) {
		f.Add("customDomain", "is not a domain name in lower case, such as shop.example.com")
	}
	checkVersion(&f, b.Version)
	switch b.Data {
	case "", DataNew:
		if b.Mode != "" {
			f.Add("mode", "is for data: shared")
		}
	case DataShared:
	default:
		f.Add("data", "is new or shared")
	}
	if b.StorageBytes < 0 {
		f.Add("storageBytes", "is negative")
	}
	return f.Refusal()
}

func checkVersion(f *machines.Findings, version string) {
	if version != "" && !versionForm.MatchString(version) {
		f.Add("version", "needs letters, digits and ._+-")
	}
}

// moves reports whether rows of the tenant are moved.
func (b *RequestBody) moves() bool { return b.Data == DataShared }

// database is the request as the workers of machines/database know it.
func (b *RequestBody) database() database.RequestBody {
	return database.RequestBody{EnterpriseID: b.EnterpriseID, Region: b.Region, Spec: b.DBSpec, Mode: b.Mode, OnFailure: b.OnFailure, AllowEmpty: !b.moves(), IdleSeconds: b.IdleSeconds}
}

// For is the body for the tenant of a path. It is refused when it names another one.
func (b *RequestBody) For(tenant string) (RequestBody, *machines.Refusal) {
	asked := b.database()
	found, refused := asked.For(tenant)
	r := *b
	r.EnterpriseID = found.EnterpriseID
	return r, refused
}

// maxSlug leaves room for tenant- before it, and for the number of a release behind it, in a label.
const maxSlug = 40

// slug is what is made from the name of a tenant.
func slug(enterprise string) string {
	s := strings.Trim(strings.ToLower(enterprise), "-")
	s = strings.Trim(s[:min(len(s), maxSlug-5)], "-") // and for the suffix
	if s == "" {
		return "t"
	}
	return s
}

// UpgradeBody is the body of upgrade.
type UpgradeBody struct {
	Version  string `json:"version,omitempty" maxLength:"128" doc:"To this version; when empty that of the channel, or with redeploy and without a channel the one that the tenant has"`
	Channel  string `json:"channel,omitempty" maxLength:"63" doc:"That of the request when empty"`
	Redeploy bool   `json:"redeploy,omitempty" doc:"Also where the tenant has that version: another release of it gets what is configured now"`
	Steps
}

// DowngradeBody is the body of downgrade.
type DowngradeBody struct {
	Steps
}

// Steps are how traffic goes over.
type Steps struct {
	Weights  []int `json:"weights,omitempty" maxItems:"16" doc:"Percents of the traffic that the new version gets, one after the other; 5, 25, 50, 100 when empty. The last one is 100"`
	Hold     int   `json:"holdSeconds,omitempty" minimum:"0" maximum:"900" doc:"For how long each is watched; 0 is 30"`
	Approval bool  `json:"approval,omitempty" doc:"After each but the last, wait for approve; rollback takes it back meanwhile"`
}

// Validate checks the version and the steps.
func (b *UpgradeBody) Validate() *machines.Refusal {
	var f machines.Findings
	checkVersion(&f, b.Version)
	b.check(&f)
	return f.Refusal()
}

// Validate checks the steps.
func (b *DowngradeBody) Validate() *machines.Refusal {
	var f machines.Findings
	b.check(&f)
	return f.Refusal()
}

func (b *Steps) check(f *machines.Findings) {
	before := 0
	for _, w := range b.Weights {
		if w <= before || w > 100 {
			f.Add("weights", "must rise, from 1 to 100")
			break
		}
		before = w
	}
	if n := len(b.Weights); n > 16 || n > 0 && b.Weights[n-1] != 100 {
		f.Add("weights", "must be at most 16, and end with 100")
	}
	f.Between("holdSeconds", b.Hold, 0, 900)
}

// RetireBody is the body of deprovision.
type RetireBody struct {
	Tenant string `json:"tenant" doc:"The tenant again, as its rows name it: nothing is closed by mistake"`
	Export bool   `json:"export,omitempty" doc:"Export the tenant's data when nothing serves it any more, before its database and bucket are taken away; without the export, they are not"`
}
