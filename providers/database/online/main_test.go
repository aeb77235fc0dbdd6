package online_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/bcc94042/instar/internal/postgres"
	"github.com/bcc94042/instar/providers/database/databasetest"
)

var suite = postgres.Suite{Config: databasetest.Config}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(two.Around(usual.Around(bounded.Around(small.Around(suite.Around(m))))))
}
