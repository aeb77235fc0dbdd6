package consumers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// answered is the part that all answers of a stream's API have.
type answered struct {
	Error *jetstream.APIError `json:"error"`
}

func (a *answered) refusal() *jetstream.APIError { return a.Error }

// request asks a stream's leader for what package jetstream offers only after a look at the stream, which is a round trip
// more. It fails with a [jetstream.APIError] when the stream refuses.
func request(ctx context.Context, nc *nats.Conn, verb, stream string, body any, into interface{ refusal() *jetstream.APIError }) error {
	req, err := json.Marshal(body)
	if err != nil {
		return err
	}
	m, err := nc.RequestWithContext(ctx, "$JS.API.STREAM."+verb+"."+stream, req)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(m.Data, into); err != nil {
		return fmt.Errorf("cannot read the stream's answer: %w", err)
	}
	if refused := into.refusal(); refused != nil {
		return refused
	}
	return nil
}
