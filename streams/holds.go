package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrUnreadable says that the leader of a stream holds a message and cannot read it. It answers "no message found" then,
// too, whatever its disk said.
var ErrUnreadable = errors.New("the stream holds the message, but cannot read it")

// Holds reports whether the leader of a stream has a message under a subject. It answers from its index of subjects,
// which is in memory, so a disk that fails does not turn a message into none.
func Holds(ctx context.Context, s jetstream.Stream, subject string) (bool, error) {
	info, err := LeadersInfo(ctx, s, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return false, fmt.Errorf("streams: cannot ask what there is under %s: %w", subject, err)
	}
	return len(info.State.Subjects) > 0, nil
}

// mostHeld is how many messages of one subject [HoldsID] looks at.
const mostHeld = 64

// HoldsID reports whether the leader of a stream has a message of an id under a subject, which may have wildcards. It fails with
// [ErrUnreadable] where it cannot tell: messages cannot be read, went meanwhile, or are more than 64.
func HoldsID(ctx context.Context, s jetstream.Stream, subject, id string) (bool, error) {
	info, err := LeadersInfo(ctx, s, jetstream.WithSubjectFilter(subject))
	if err != nil {
		return false, fmt.Errorf("streams: cannot ask what there is under %s: %w", subject, err)
	}
	var there uint64
	for _, n := range info.State.Subjects {
		there += n
	}
	for seq, looked := uint64(1), uint64(0); looked < there; looked++ {
		if looked == mostHeld {
			return false, ErrUnreadable
		}
		m, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return false, ErrUnreadable
		}
		if err != nil {
			return false, fmt.Errorf("streams: cannot read what there is under %s: %w", subject, err)
		}
		if Header(m.Header, HeaderID) == id {
			return true, nil
		}
		seq = m.Sequence + 1
	}
	return false, nil
}

// ErrLeaderless says that a stream has no leader now, so that nobody knows what it has.
var ErrLeaderless = errors.New("the stream has no leader now")

// Led is a stream with what its leader says of it. It fails with [ErrLeaderless] where there is none: any member answers then, of what it has
// itself, which may be less than was acknowledged.
func Led(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	return s, led(s.CachedInfo())
}

func led(info *jetstream.StreamInfo) error {
	if info.Cluster != nil && info.Cluster.Leader == "" {
		return ErrLeaderless
	}
	return nil
}

// LeadersInfo is Info of a stream's leader, as [Led].
func LeadersInfo(ctx context.Context, s jetstream.Stream, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	info, err := s.Info(ctx, opts...)
	if err == nil {
		err = led(info)
	}
	return info, err
}

// Leaderless reports whether an answer of a stream's API says that there is nobody to answer: no server listens, the cluster knows of no
// leader, or INFO was answered by a member without one; see [Holds].
func Leaderless(answer []byte) bool {
	return len(answer) == 0 || bytes.Contains(answer, notAvailable) ||
		bytes.Contains(answer, []byte(`"cluster":{`)) && !bytes.Contains(answer, []byte(`"leader":"`))
}
