package providers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/bcc94042/instar/machines"
)

// Code says what kind of error a gateway's error is.
type Code string

// The codes of an [Error], and those that [Serving] gives to what no gateway named.
const (
	NotFound    Code = "not-found"   // there is no such object
	Invalid     Code = "invalid"     // the request can never work
	Unavailable Code = "unavailable" // try again later
	Fenced      Code = "fenced"      // a newer request was seen: this one is obsolete, or of an entity that has lost versions
	Internal    Code = "internal"    // the gateway's own trouble
	// LimitExceeded is of what would need more memory, time or space than it may have: the same again needs as much.
	LimitExceeded Code = "limit-exceeded"
	Timeout       Code = "timeout" // the call ran out of time: its outcome is unknown
	Panicked      Code = "panic"   // the gateway's code is broken
)

// Error is the only kind of error that a gateway returns, besides those of the context.
type Error struct {
	Code       Code
	Message    string
	RetryAfter time.Duration // of Unavailable: the least wait
	Fence      uint64        // of Fenced: the one that was seen
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Errorf makes an error of that code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Later is Unavailable with the least wait before the next try; more than [machines.MaxRetryAfter] is that.
func Later(wait time.Duration, format string, args ...any) *Error {
	return &Error{Code: Unavailable, Message: fmt.Sprintf(format, args...), RetryAfter: wait}
}

// Older is Fenced, for a request with an older fence than one that was seen.
func Older(fence, seen uint64) *Error {
	return &Error{Code: Fenced, Message: fmt.Sprintf("fence %d is older than %d", fence, seen), Fence: seen}
}

// CodedError is an error with a failure that a machine knows by its code. What it says is told as it is, and repeated only where it says so.
type CodedError struct{ machines.Failure }

func (e *CodedError) Error() string { return e.Code + ": " + e.Message }

// Coded makes an error of a machine's own code, which is not to be tried again.
func Coded(code, format string, args ...any) *CodedError {
	return &CodedError{machines.Failure{Code: code, Message: clean(fmt.Sprintf(format, args...))}}
}

// CodeOf is the code of the [Error] in err's chain, Timeout for one of a context, Internal for any other, and empty
// for nil.
func CodeOf(err error) Code {
	var e *Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &e):
		return e.Code
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return Timeout
	}
	return Internal
}

// IsNotFound reports whether err says that there is no such object.
func IsNotFound(err error) bool { return CodeOf(err) == NotFound }

// IsInvalid reports whether err says that the request can never work.
func IsInvalid(err error) bool { return CodeOf(err) == Invalid }

// IsUnavailable reports whether err says to try again later.
func IsUnavailable(err error) bool { return CodeOf(err) == Unavailable }

// IsFenced reports whether err says that a newer request was seen.
func IsFenced(err error) bool { return CodeOf(err) == Fenced }

// Failure is what the engine gets for an error: only what may work the next time is retryable. So is a refusal for the fence: it reaches an entity only
// that still waits for what was refused, and its next try has a higher one. That of a [CodedError] is its own.
func Failure(err error) *machines.Failure {
	var coded *CodedError
	if errors.As(err, &coded) {
		f := coded.Failure
		return &f
	}
	f := &machines.Failure{Code: string(CodeOf(err)), Message: clean(err.Error())}
	switch CodeOf(err) {
	case Unavailable, Timeout, Internal, Fenced:
		f.Retryable = true
	}
	var e *Error
	if errors.As(err, &e) {
		f.Message, f.RetryAfter, f.Fence = clean(e.Message), e.RetryAfter, e.Fence
	}
	return f
}

// longest is how much text of the world is let in.
const longest = 1024

// clean makes foreign text harmless: no control characters, and not too long.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "…"
}
