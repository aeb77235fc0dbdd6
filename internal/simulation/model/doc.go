// Package model is a NATS server with JetStream in memory, for simulations and for tests that want a fast one. It speaks the client protocol on
// connections in memory, so nats.go and everything above it run on it as they are; the streams behind it are those of package core.
//
// Whoever drives it decides what happens next. What clients publish waits ([Server.Pending]) until it is processed ([Server.Step]); what that causes
// waits ([Server.Outbound]) until it is delivered ([Server.Deliver]) or lost ([Server.Drop]); time passes by [Server.Advance], and [Server.NextTimer] says
// when something is due. Connections break ([Server.Kill]), the process crashes ([Server.Restart]), the machine loses its power ([Server.PowerLoss]).
// Each connection is first in, first out, both ways. CONNECT, PING, PONG, SUB and UNSUB are no steps: each takes effect as soon as everything is
// processed that its client published before, and a PONG is sent when everything is delivered that was queued before. With [Server.Auto] all of it
// happens at once, and time by itself.
//
// The model is deterministic: the same packets in the same order at the same times cause the same bytes. It draws nothing at random; where the server
// does (the jitter of an inactive consumer, names that it makes up), the model has a fixed choice. Nothing blocks but Read of a connection, durably
// in a bubble of testing/synctest.
//
// A stream with replicas is modelled as what its leader answers: the order of its checks, no answer while there is none ([Server.LoseLeader]), and a successor
// that has all that was stored ([Server.Elect]). Replicas that lag, and writes that are under way when another one comes, are not.
//
// That it does not lie is tested against the embedded nats-server: the same random operations, answer for answer (conformance_test.go), and in time (time_test.go), on a
// single server; streams with replicas against three of them (replicas_test.go). What it was found to have wrong is a case in facts_test.go or there, in a sentence. It knows no mirrors, sources, counters, priority groups, delete
// markers, snapshots, reads of many at once and schedules that repeat: it refuses them as not modelled.
package model
