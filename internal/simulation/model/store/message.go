package store

import (
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// Message is one message on its way.
type Message struct {
	To           string // the subject that it is routed by
	Subject      string // the one that it shows; empty is To
	Reply        string
	Header, Data []byte
}

// Dynamic adds to the metadata of a configuration what only an answer has.
func Dynamic(meta map[string]string) {
	meta[server.JSServerVersionMetadataKey] = server.VERSION
	meta[server.JSServerLevelMetadataKey] = strconv.Itoa(server.JSApiLevel)
}

// Static is metadata without that.
func Static(meta map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range meta {
		if k != server.JSServerVersionMetadataKey && k != server.JSServerLevelMetadataKey {
			out[k] = v
		}
	}
	return out
}
