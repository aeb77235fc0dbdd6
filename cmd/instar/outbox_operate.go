package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/api"
	"github.com/bcc94042/instar/streams/outbox"
)

func outboxOperations() []*cobra.Command { return nil }

func (s *session) databaseStatus(*cobra.Command, string) error {
	return errors.New("this build cannot look at a database without a server yet")
}

func (o *outboxes) Redrive(context.Context, string, api.OutboxFilter, string) (int64, error) {
	return 0, &api.OutboxUnavailable{Reason: "this build cannot change failed rows yet"}
}

func (o *outboxes) Discard(context.Context, string, api.OutboxFilter, string) (int64, error) {
	return 0, &api.OutboxUnavailable{Reason: "this build cannot change failed rows yet"}
}

func initOutbox(ctx context.Context, dsn, schema, mode string) error {
	return outbox.Init(ctx, dsn, schema, outbox.Settings{Mode: outbox.Mode(mode)})
}
