package tenants_test

import (
	"os"
	"testing"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers/database/databasetest"
)

// Two servers: one that tenants share, and one for their own databases.
var shared, own = postgres.Suite{Config: databasetest.Config}, postgres.Suite{Config: databasetest.Config}

func TestMain(m *testing.M) {
	if settings := os.Getenv(serverSettings); settings != "" { // this process is the server of a test, which kills it
		os.Exit(serve(settings))
	}
	os.Exit(own.Around(shared.Around(m)).Run())
}
