package storage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/providers"
)

// patience is for how long nothing may come of a list. The client finds out after ten seconds that what it has asked was lost with its connection, and asks again.
const patience = 15 * time.Second

const most = 1 << 60 // bytes that are counted

// list is what is said of the objects of a bucket. It does not use the object store of nats.go: that takes a list that was cut off for whole, of which an export would be one of a part, and waits for ever where
// the last message is none of its own.
func (o *ObjectStores) list(ctx context.Context, bucket string) (all []*jetstream.ObjectInfo, err error) {
	c, err := o.JS.OrderedConsumer(wait.EachRequest(ctx), "OBJ_"+bucket, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{"$O." + bucket + ".M.>"}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	})
	if err != nil {
		return nil, err
	}
	messages, err := c.Messages()
	if err != nil {
		return nil, err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	within, bytes := cmp.Or(o.Patience, patience), uint64(0)
	for left := c.CachedInfo().NumPending; left > 0; {
		m, err := messages.Next(jetstream.NextMaxWait(within))
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return nil, fmt.Errorf("nothing more came of it for %s: %w", within, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		left = meta.NumPending
		info := &jetstream.ObjectInfo{}
		if err := json.Unmarshal(m.Data(), info); err != nil {
			return nil, providers.Errorf(providers.Invalid, "message %d of the stream OBJ_%s, which is to describe an object, is none of an object store; remove it (nats stream rmm OBJ_%[2]s %[1]d)", meta.Sequence.Stream, bucket)
		}
		if !info.Deleted {
			all, bytes = append(all, info), min(bytes+min(info.Size, most), most)
		}
	}
	st, err := o.JS.Stream(wait.EachRequest(ctx), "OBJ_"+bucket)
	if err != nil {
		return nil, err
	}
	if has := st.CachedInfo().State.Bytes; bytes > has { // some may name the same parts
		return nil, fmt.Errorf("its objects are said to have %d bytes, and all of it has %d", bytes, has)
	}
	return all, nil
}
