package store

// Headers as bytes, as they are on the wire and in a stream: a line with the version, lines of a name and a value, an empty line. The names that a
// stream reads are matched as the server matches them, case and all, and the first of a name counts.

import (
	"bytes"
	"strconv"
	"strings"
)

const (
	HeaderLine = "NATS/1.0\r\n"
	CRLF       = "\r\n"

	HeaderMsgID          = "Nats-Msg-Id"
	HeaderExpectStream   = "Nats-Expected-Stream"
	HeaderExpectLast     = "Nats-Expected-Last-Sequence"
	HeaderExpectMsgID    = "Nats-Expected-Last-Msg-Id"
	HeaderExpectSubject  = "Nats-Expected-Last-Subject-Sequence"
	HeaderExpectFor      = "Nats-Expected-Last-Subject-Sequence-Subject"
	HeaderTTL            = "Nats-TTL"
	HeaderRollup         = "Nats-Rollup"
	HeaderSchedule       = "Nats-Schedule"
	HeaderScheduleTTL    = "Nats-Schedule-TTL"
	HeaderScheduleTarget = "Nats-Schedule-Target"
	HeaderScheduleSource = "Nats-Schedule-Source"
	HeaderScheduleRollup = "Nats-Schedule-Rollup"
	HeaderScheduleZone   = "Nats-Schedule-Time-Zone"
	HeaderScheduleNext   = "Nats-Schedule-Next"
	HeaderScheduler      = "Nats-Scheduler"
	HeaderBatchID        = "Nats-Batch-Id"
	HeaderBatchSeq       = "Nats-Batch-Sequence"
	HeaderBatchCommit    = "Nats-Batch-Commit"
	HeaderStreamSource   = "Nats-Stream-Source"
	HeaderIncr           = "Nats-Incr"

	RollupSubject = "sub"
	RollupAll     = "all"
	NextPurge     = "purge"
)

// Get is the value of a header, and whether it is there.
func Get(hdr []byte, name string) (string, bool) {
	for rest := hdr; ; {
		i := bytes.Index(rest, []byte(name))
		if i < 0 {
			return "", false
		}
		after := rest[i+len(name):]
		if len(after) > 0 && after[0] == ':' && len(hdr)-len(rest)+i > 0 && hdr[len(hdr)-len(rest)+i-1] == '\n' {
			end := bytes.Index(after, []byte(CRLF))
			if end < 0 {
				return "", false
			}
			return string(bytes.TrimLeft(after[1:end], " ")), true
		}
		rest = after
	}
}

// Value is the value of a header, empty where it is not there.
func Value(hdr []byte, name string) string {
	v, _ := Get(hdr, name)
	return v
}

// Number is the value of a header as a sequence, and whether the header is there. What is no number is the largest one, which no sequence is.
func Number(hdr []byte, name string) (uint64, bool) {
	v, ok := Get(hdr, name)
	if !ok || v == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(v, 10, 63)
	if err != nil {
		return ^uint64(0), true
	}
	return n, true
}

// With adds a header.
func With(hdr []byte, name, value string) []byte {
	var b bytes.Buffer
	if len(hdr) == 0 {
		b.WriteString(HeaderLine)
	} else {
		b.Write(hdr[:len(hdr)-len(CRLF)])
	}
	b.WriteString(name + ": " + value + CRLF + CRLF)
	return b.Bytes()
}

// without removes headers for which drop says so, by their names. It is nil when none is left.
func without(hdr []byte, drop func(name string) bool) []byte {
	out, some := []byte(HeaderLine), false
	first := true
	for line := range bytes.SplitSeq(hdr, []byte(CRLF)) {
		if first || len(line) == 0 {
			first = false
			continue
		}
		name, _, _ := bytes.Cut(line, []byte(":"))
		if !drop(string(name)) {
			out, some = append(append(out, line...), CRLF...), true
		}
	}
	if !some {
		return nil
	}
	return append(out, CRLF...)
}

// Fired are the headers of a message that a schedule fires, of those of the schedule.
func Fired(hdr []byte) []byte {
	return without(hdr, func(name string) bool {
		return strings.HasPrefix(name, "Nats-Schedule") || strings.HasPrefix(name, "Nats-Expected-") ||
			name == HeaderMsgID || name == HeaderTTL || name == HeaderRollup
	})
}
