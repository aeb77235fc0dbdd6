package database_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers/database/databasetest"
)

// The source of tests that end it is a server of its own.
var suite, failing = postgres.Suite{Config: databasetest.Config}, postgres.Suite{Config: databasetest.Config}

func TestMain(m *testing.M) { goleak.VerifyTestMain(failing.Around(suite.Around(m))) }
