// Package all lists the lifecycles that the program runs: a new one is one folder beside it and one line here.
package all

import (
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/machines/queue"
	"github.com/bcc94042/instar/machines/relay"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/machines/task"
)

// Machines are the lifecycles in the order in which they are shown.
func Machines() []*machines.Machine {
	return []*machines.Machine{
		service.Machine,
		instance.Machine,
		preservation.Machine,
		relay.Machine,
		repository.Machine,
		task.Machine,
		queue.Machine,
		database.Machine, // which servers have only where tenants are configured
		domain.Machine,   // and this one where there is a proxy
		platform.Machine, // where there are both, and instances are configured
	}
}
