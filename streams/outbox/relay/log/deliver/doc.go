// Package deliver brings rows of the log into the stream: deliver.go publishes them and keeps aside the aggregates whose first row cannot
// be published, retry.go tries those again, and table.go has the queries of outbox_parked. compare.go and late.go tell what earlier
// sessions have stored, when a shard is opened.
package deliver
