package builtin

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Where the passed sockets are.
const (
	publicFD  = 3
	privateFD = 4
)

// sockets are the two doors of a program. A nil private one means that it was started by hand.
type sockets struct {
	public  func() (net.Listener, error) // may be called once, when the socket is to be accepted on
	private net.Listener
}

func open() (*sockets, error) {
	if os.Getenv("LISTEN_FDS") == "" {
		addr := net.JoinHostPort("127.0.0.1", cmp.Or(os.Getenv("PORT"), "8080"))
		return &sockets{public: func() (net.Listener, error) { return net.Listen("tcp", addr) }}, nil
	}
	if names := os.Getenv("LISTEN_FDNAMES"); !strings.HasPrefix(names+":", "public:private:") {
		return nil, fmt.Errorf("LISTEN_FDNAMES is %q, not public:private", names)
	}
	unix.CloseOnExec(publicFD)
	unix.CloseOnExec(privateFD)
	lend()
	private, err := inherit(privateFD)
	if err != nil {
		return nil, err
	}
	return &sockets{public: func() (net.Listener, error) { return inherit(publicFD) }, private: private}, nil
}

// inherit makes a listener of a passed socket.
func inherit(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), fmt.Sprintf("listener %d", fd))
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on descriptor %d: %w", fd, err)
	}
	return &passed{l, f}, nil
}

// passed keeps the descriptor under the number at which it was passed, besides its duplicate in the listener: a later
// control plane looks for it there.
type passed struct {
	net.Listener
	file *os.File
}

func (p *passed) Close() error { return errors.Join(p.Listener.Close(), p.file.Close()) }
