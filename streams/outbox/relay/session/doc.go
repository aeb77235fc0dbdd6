// Package session opens shards: session.go writes the marker that ends all earlier sessions, readback.go finds what they stored and did
// not account for, generation.go and regress.go tell that the database or the stream is at an older state than the other one, and
// cursor.go keeps positions where those who look into the database find them.
package session
