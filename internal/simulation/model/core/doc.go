// Package core is JetStream without a network: streams and consumers in memory, and the API that asks about them. It is a plain state machine. A
// [Core] is given messages ([Core.Publish]) and the time ([Core.Advance]), and hands what it causes to its [Outlet] before it returns; it starts no
// goroutine, looks at no clock, and draws no random number, so the same calls at the same times have the same outcome.
//
// It answers as nats-server of the pinned version answers, single or replicated, in all that the product asks of it; package model compares the two,
// answer for answer. What it does not know it refuses with code 10052 and the words "not modelled", so that nothing passes by mistake.
package core
