package publish

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/bcc94042/instar/streams"
)

// Error codes of the server that decide something. They are taken from nats-server's errors.json; the text of an
// error decides nothing.
const (
	codeWrongSequence     = 10071 // a condition does not hold
	codeSequenceInFlight  = 10164 // the same on replicated streams, while another write to the subject is under way
	codeDuplicateInFlight = 10158 // a message of the same id is under way, on replicated streams
	codeTooManyRequests   = 10167 // the inbound queue of the stream is full
)

// permanent are the codes of the server for what is wrong with a message itself, whatever the state of the server, its limits
// and the configuration of the stream: its size, or the value of a header that JetStream reads.
var permanent = map[int]bool{
	10054: true, // message size exceeds maximum allowed
	10097: true, // header size exceeds maximum allowed of 64k
	10165: true, // invalid per-message TTL
	10170: true, // message counter has payload
	10171: true, // message counter increment is invalid
	10189: true, // message schedules pattern is invalid
	10190: true, // message schedules target is invalid
	10191: true, // message schedules invalid per-message TTL
	10192: true, // message schedules invalid rollup
	10193: true, // missing sequence for expected last sequence per subject
	10203: true, // message schedules source is invalid
	10212: true, // message schedules invalid scheduler
	10223: true, // message schedules time zone is invalid
	10227: true, // message stream source header is not allowed
}

// RefusedError is a write that the stream refused. [Permanent] tells whether it will refuse it again.
type RefusedError struct {
	Code        int
	Description string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the stream refused: %s (%d)", e.Description, e.Code)
}

// Is makes a refused condition an [ErrConflict].
func (e *RefusedError) Is(target error) bool {
	return target == ErrConflict && (e.Code == codeWrongSequence || e.Code == codeSequenceInFlight)
}

var ackStart = []byte(`{"stream":"`)

// parseAck reads the answer to a publish. The usual one is read by hand: there is one for every message.
func parseAck(m *nats.Msg) Result {
	if len(m.Data) == 0 { // a "no responders" status: no stream listens on the subject
		return Result{Err: fmt.Errorf("%w: %w", ErrUnanswered, errNoStream)}
	}
	if rest, ok := bytes.CutPrefix(m.Data, ackStart); ok {
		if i := bytes.Index(rest, []byte(`"seq":`)); i >= 0 {
			rest = rest[i+len(`"seq":`):]
			end := 0
			for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
				end++
			}
			if bytes.Equal(rest[end:], []byte("}")) {
				seq, err := strconv.ParseUint(string(rest[:end]), 10, 64)
				if err == nil {
					return Result{Seq: seq}
				}
			}
		}
	}
	var ack struct {
		Seq       uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
		Error     *struct {
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return Result{Err: fmt.Errorf("%w: unreadable: %w", ErrUnanswered, err)}
	}
	if ack.Error != nil {
		return Result{Err: &RefusedError{ack.Error.ErrCode, ack.Error.Description}}
	}
	return Result{Seq: ack.Seq, Duplicate: ack.Duplicate}
}

// Permanent reports whether a write was refused for what is wrong with the message itself, its subject too ([streams.ErrSubject]): the same write
// will be refused again, whoever waits. All else is either a condition ([ErrConflict]) or of the environment (limits of the server or the
// account, storage, elections, rates, configuration, no answer), and ends without a change of the message. So does a code that
// this version does not know.
func Permanent(err error) bool {
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, streams.ErrSubject) { // refused before it was sent
		return true
	}
	var refused *RefusedError
	var api *jetstream.APIError // of a write by package jetstream
	return errors.As(err, &refused) && permanent[refused.Code] || errors.As(err, &api) && permanent[int(api.ErrorCode)]
}

// outOfRoom are the codes of a server, or an account, that may not store more.
var outOfRoom = map[int]bool{
	10002: true, // resource limits exceeded for account
	10023: true, // insufficient resources
	10028: true, // JetStream memory resources exceeded
	10047: true, // insufficient storage resources available
}

// OutOfRoom reports whether a write was refused because a limit of the server or the account is reached. The store works.
func OutOfRoom(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && outOfRoom[refused.Code]
}

// TooMany reports whether a write was refused because the stream has more to take than it can.
func TooMany(err error) bool {
	var refused *RefusedError
	return errors.As(err, &refused) && refused.Code == codeTooManyRequests
}

// AckError is why the stream did not take the message that m answers, or nil.
func AckError(m *nats.Msg) error { return parseAck(m).Err }
