package command

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// errUnread ends a stream when nobody reads it any more, as after head has what it wanted. A write would find that out, too,
// and end the process by SIGPIPE, but a watch may have nothing to write for hours.
var errUnread = errors.New("nobody reads the output any more")

// UntilUnread runs what writes until it is interrupted, and ends it with errUnread when nobody reads the output any more.
func (s *Session) UntilUnread(write func() error) error {
	whole := s.Ctx
	ctx, end := context.WithCancelCause(whole)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if unread(ctx, s.Out) {
			end(errUnread)
		}
	}()
	s.Ctx = ctx
	err := write()
	if context.Cause(ctx) == errUnread { // nobody wraps it
		err = errUnread
	}
	end(nil)
	<-watched
	s.Ctx = whole
	return err
}

// unread waits until the other end of out was closed, if that is a pipe or a socket, or until ctx has ended.
func unread(ctx context.Context, out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd())}} // errors and hang-ups are told without being asked for
	for ctx.Err() == nil {
		n, err := unix.Poll(fds, int(pollFor/time.Millisecond))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
	return false
}

// pollFor is how long unread does not look whether its context has ended.
const pollFor = 100 * time.Millisecond
