package platform

import (
	"time"

	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/session"
)

// Data is what a session keeps.
type Data struct {
	Request RequestBody `json:"request,omitzero"`
	session.Course
	Plan          *Plan               `json:"plan,omitempty"`
	Slug          string              `json:"slug,omitempty"`
	SlugTries     int                 `json:"slugTries,omitempty"` // generated slugs that were taken
	Version       string              `json:"version,omitempty"`   // that the tenant has, or gets
	Previous      string              `json:"previousVersion,omitempty"`
	Release       int                 `json:"release,omitempty"` // number of the application that is served, or is made
	Releases      int                 `json:"releases,omitempty"`
	Instance      *Instance           `json:"instance,omitempty"`
	Database      *database.Allocated `json:"database,omitempty"`
	Storage       *Storage            `json:"storage,omitempty"`
	App           *App                `json:"app,omitempty"`
	Migrations    int                 `json:"migrations,omitempty"`
	Progress      *database.Progress  `json:"progress,omitempty"`
	Verified      *database.Verified  `json:"verified,omitempty"`
	PrimaryDomain string              `json:"primaryDomain,omitempty"`
	Route         *Route              `json:"route,omitempty"`
	Certificate   *Certificate        `json:"certificate,omitempty"`
	Problem       string              `json:"problem,omitempty"`   // why the certificate is not renewed yet
	Upgrade       *Upgrade            `json:"upgrade,omitempty"`   // under way
	Export        bool                `json:"export,omitempty"`    // before the tenant is closed
	RetiringAt    time.Time           `json:"retiringAt,omitzero"` // when that began
	session.Trail
	session.End
}

// Plan is what a session will do, and with what.
type Plan struct {
	Steps    []string         `json:"steps,omitempty"`
	Version  string           `json:"version" doc:"Of the release channel, or the one that was asked for; every task has it"`
	Domain   string           `json:"platformDomain" doc:"Under which the tenant's slug becomes its primary domain"`
	Approval bool             `json:"approval,omitempty" doc:"The policy asks for approve"`
	Quota    []Quota          `json:"quota,omitempty"`
	Rows     map[string]int64 `json:"rows,omitempty" doc:"By table, of the data that is moved"`
	Total    int64            `json:"total,omitempty"`
	Seconds  float64          `json:"estimatedSeconds,omitempty"`
	Notes    []string         `json:"notes,omitempty"`
	Server   string           `json:"server,omitempty" doc:"That the database will be on"`
	Export   bool             `json:"export,omitempty" doc:"The server has somewhere to export to"`
}

// Quota is how much of something is used, with this session.
type Quota struct {
	Name  string `json:"name"`
	Used  int64  `json:"used"`
	Limit int64  `json:"limit"`
}

// Instance is the tenant's compute.
type Instance struct {
	ID   string `json:"instanceId"`
	Host string `json:"instanceHost"` // where its route leads
}

// Storage is the tenant's bucket. Its credentials are sealed.
type Storage struct {
	ID          string `json:"storageId"`
	Bucket      string `json:"bucket"`
	Prefix      string `json:"prefix,omitempty"` // of its objects, where the bucket is shared
	Endpoint    string `json:"endpoint,omitempty"`
	Credentials string `json:"credentials,omitempty"`
}

// App is a deployed release.
type App struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Address string `json:"address,omitempty"` // of its process, host:port
}

// Route is where the tenant is reached.
type Route struct {
	ID     string `json:"routeId"`
	Domain string `json:"customDomainBindingId,omitempty"` // the key of its entity of machines/domain
}

// Certificate is that of the primary domain.
type Certificate struct {
	Issuer   string    `json:"issuer,omitempty"`
	Serial   string    `json:"serial,omitempty"`
	NotAfter time.Time `json:"notAfter"`
}

// Trouble is why the certificate is not renewed yet.
type Trouble struct {
	Message string `json:"message"`
}

// Proven is the outcome of the readiness check through the route.
type Proven struct {
	URL    string  `json:"url"`
	Status int     `json:"status"`
	Millis float64 `json:"ms,omitempty"`
}

// Rollout is how far a deployment is.
type Rollout struct {
	Status   string `json:"status"`
	Ready    int    `json:"ready,omitempty"`
	Replicas int    `json:"replicas,omitempty"`
}

// Upgrade is the way to another version.
type Upgrade struct {
	From     string `json:"from"`
	To       string `json:"to,omitempty"` // empty until the plan has it from the channel
	Channel  string `json:"channel,omitempty"`
	Release  int    `json:"release"`       // number of the application that is made
	App      *App   `json:"app,omitempty"` // beside the one that is served
	Weights  []int  `json:"weights"`
	Weight   int    `json:"weight"` // of the new application, in percent: what the step sets, or has set
	Hold     int    `json:"holdSeconds"`
	Approval bool   `json:"approval,omitempty"` // each share but the first waits for approve
	Redeploy bool   `json:"redeploy,omitempty"` // also to the same version
}

// Shifted is how the new application did at a weight.
type Shifted struct {
	Weight     int   `json:"weight"`
	Requests   int64 `json:"requests,omitempty"`
	Errors     int64 `json:"errors,omitempty"`
	HealthOnly bool  `json:"healthOnly,omitempty"` // there were too few requests to judge by
}
