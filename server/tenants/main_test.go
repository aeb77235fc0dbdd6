package tenants_test

import (
	"os"
	"testing"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/machines"
	machine "github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/providers/database/databasetest"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/servertest"
	"github.com/bcc94042/instar/server/tenants"
)

// Two servers: one that tenants share, and one for their own databases.
var shared, own = postgres.Suite{Config: databasetest.Config}, postgres.Suite{Config: databasetest.Config}

func TestMain(m *testing.M) {
	if at := os.Getenv(natsEnv); at != "" {
		if err := natsAlone(at); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	servertest.Main(server.Options{Machines: []*machines.Machine{machine.Machine}, Providers: map[string]server.Provider{machine.Machine.Name: tenants.Provider()}})
	os.Exit(own.Around(shared.Around(m)).Run())
}
