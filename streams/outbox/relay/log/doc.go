// Package log relays the append-only table of mode log, which it reads behind a cursor. loop.go has the turns, open.go the opening of a
// shard, read.go the fence behind which batches are read, rows.go their queries; package deliver does the rest.
package log
