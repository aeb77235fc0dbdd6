package audit

import (
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Stream is the configuration of the stream of a class, whose records are kept as long as the class is by default. Who serves machines that are audited makes it. Nothing leaves it but by its age: else a gap would mean nothing.
func Stream(n streams.Names, class string, replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: n.AuditStream(class), Description: "Records of an audit, of class " + class, Subjects: []string{n.Audits(class)}, Replicas: max(replicas, 1),
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld, MaxAge: streams.LifeOf(class), Duplicates: streams.EventWindow,
		MaxMsgs: -1, MaxBytes: -1, MaxMsgsPerSubject: -1, MaxConsumers: -1, MaxMsgSize: streams.MaxMessage,
		DenyDelete: true, DenyPurge: true, AllowAtomicPublish: true,
	}
}
