package operator

// Backups, and their restores into a server that has nothing.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bcc94042/instar/consumers"
	"github.com/bcc94042/instar/consumers/backup"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/streams"
)

// Backup takes one of an installation, of which plan, machines and log are given. Before is called at the start of each try, and after with the file of the one that has succeeded.
func (o *Operator) Backup(of backup.Store, before func(), after func(file []byte)) {
	o.ask("back up", time.Minute, func(ctx context.Context) error {
		time.Sleep(10 * time.Millisecond) // what a restore counts from are numbers of time, below which an installation stays that does not do everything at one instant
		before()
		of.NC, of.JS = o.nc, o.js
		var file bytes.Buffer
		if _, err := of.Write(ctx, &file); err != nil {
			return err
		}
		after(file.Bytes())
		return nil
	})
}

var errNotEmpty = errors.New("the nodes are still there")

// Restore makes an installation of a backup. Each try asks whether there is a server for it that has nothing and that nobody else uses, and one that fails leaves it with something.
func (o *Operator) Restore(of backup.Store, file []byte, empty func() bool, after func(backup.Restored)) {
	o.ask("restore", 5*time.Minute, func(ctx context.Context) error {
		if !empty() {
			return errNotEmpty
		}
		of.NC, of.JS, of.Appender, of.Await = o.nc, o.js, o.appender, await
		done, err := of.Restore(ctx, bytes.NewReader(file))
		if err == nil {
			after(done)
		}
		return err
	})
}

// await asks a server until it can.
func await(ctx context.Context, do func(context.Context) error) error {
	for {
		err := do(ctx)
		if err == nil || errors.Is(err, streams.ErrOccupied) || ctx.Err() != nil {
			return err
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// RestoredFrom is the version that a backup had of an entity, of an event of it that tells of its restore.
func RestoredFrom(eventType string, body []byte) (version uint64, ok bool) {
	var data struct {
		Problem string `json:"problem"`
		Version uint64 `json:"version"`
	}
	_ = json.Unmarshal(body, &data) // of other events anything
	return data.Version, eventType == machines.EventReconciled && data.Problem == consumers.ProblemRestored
}
