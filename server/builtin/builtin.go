// Package builtin puts together the machines that ship with what serves them. It is the one place that names them all.
package builtin

import (
	"github.com/bcc94042/instar/machines/all"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/machines/instance"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/machines/preservation"
	"github.com/bcc94042/instar/machines/queue"
	relaymachine "github.com/bcc94042/instar/machines/relay"
	"github.com/bcc94042/instar/machines/repository"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/machines/task"
	process "github.com/bcc94042/instar/providers/process/builtin"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/domains"
	"github.com/bcc94042/instar/server/instances"
	"github.com/bcc94042/instar/server/keyset"
	"github.com/bcc94042/instar/server/platform"
	"github.com/bcc94042/instar/server/relays"
	"github.com/bcc94042/instar/server/services"
	"github.com/bcc94042/instar/server/tasks"
	"github.com/bcc94042/instar/server/tenants"
)

// Options are the machines that ship, with what serves them. Every call makes them anew, so that the caller can add its own.
func Options() server.Options {
	return server.Options{
		Machines: all.Machines(),
		Providers: map[string]server.Provider{
			service.Machine.Name:      services.Provider(),
			instance.Machine.Name:     instances.Provider(),
			preservation.Machine.Name: instances.PreservationProvider(),
			relaymachine.Machine.Name: relays.Provider(),
			repository.Machine.Name:   tasks.RepositoryProvider(),
			task.Machine.Name:         tasks.Provider(tasks.Runner),
			queue.Machine.Name:        tasks.QueueProvider(),
			database.Machine.Name:     tenants.Provider(),
			domain.Machine.Name:       domains.Provider(),
			machine.Machine.Name:      platform.Provider(),
		},
		Absent: absent,
		Programs: map[string]server.Program{
			"run-template":  {Run: process.Main},
			"tenant-keyset": {Doc: "FILE: Make the keyset that credentials of tenants and private keys are sealed with", Run: keyset.Program},
		},
	}
}

// absent are words of paths that there are only with sections of the configuration which this one lacks, and those sections.
func absent(c config.Config) map[string]string {
	lacks := map[string]string{}
	if !c.Tenants.On() {
		for _, word := range []string{"audit", "tenant-sizes", "tenant-leftovers", database.Machine.Plural} {
			lacks[word] = "tenants"
		}
	}
	if !c.Domains.On() {
		lacks[domain.Machine.Plural] = "domains"
	}
	if !c.Platform.On() {
		lacks[machine.Machine.Plural] = "platform"
	} else if !c.Platform.Logs {
		lacks[machine.Machine.Plural+" logs"] = "platform.logs"
	}
	return lacks
}
