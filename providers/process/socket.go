//go:build linux

package process

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bcc94042/instar/providers/process/child"
)

// backlog is how many connections wait in the kernel for somebody to accept them; the system bounds it further.
const backlog = 4096

// publicFD is the descriptor of the public socket in the processes.
const publicFD = 3

// socket is the public listening socket of a service, held and never accepted on. It is kept as a bare descriptor:
// its non-blocking mode is shared with the processes that accept on it, and os.File would switch it.
type socket struct {
	mu        sync.Mutex
	fd        int // -1 when closed
	port      int
	listening bool // a second socket listens only when there is somebody to accept on it, or nobody else any more
	second    bool // the first one is held by processes only
}

// listen opens the socket of a service. Port 0 takes a free one. That somebody else has the port is an error, though
// SO_REUSEPORT is set: that happens between bind and listen, so that it only lets a later control plane in.
func listen(host string, port int) (*socket, error) {
	s, err := bind(host, port, false)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		s.close()
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := s.listen(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// listen opens the public socket; for port 0, where there is a range, on the first free port of that. No program is given its port until the service has ended.
func (u *unit) listen(port int) (s *socket, err error) {
	host, in := u.gateway.config.Host, u.gateway.config.Ports
	err = u.gateway.ports.Listen(port, u, func(port int) (int, error) {
		if s, err = listen(host, port); err != nil {
			return 0, err
		}
		return s.port, nil
	})
	switch {
	case err == nil:
		return s, nil
	case s != nil:
		s.close()
	case port == 0 && in != (Ports{}) && errors.Is(err, unix.EADDRINUSE):
		err = fmt.Errorf("all ports of %s from %d to %d are in use: free one, or widen the range", host, in.First, in.Last)
	}
	return nil, err
}

// listenBeside binds a second socket to a port whose first one lives in processes that do not give it back. It
// begins to listen with the first process that accepts on it, or when the last one ends that has the first one.
func listenBeside(host string, port int) (*socket, error) {
	s, err := bind(host, port, true)
	if err == nil {
		s.second = true
	}
	return s, err
}

func bind(host string, port int, beside bool) (*socket, error) {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil, err
	}
	ip = ip.Unmap()
	family, addr := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: port, Addr: ip.As16()})
	if ip.Is4() {
		family, addr = unix.AF_INET, &unix.SockaddrInet4{Port: port, Addr: ip.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{fd: fd}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil && beside {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if err == nil {
		err = unix.Bind(fd, addr)
	}
	if err == nil {
		s.port, err = portOf(fd)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("cannot bind %s: %w", netip.AddrPortFrom(ip, uint16(port)), err)
	}
	return s, nil
}

func portOf(fd int) (int, error) {
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		return a.Port, nil
	case *unix.SockaddrInet6:
		return a.Port, nil
	}
	return 0, errors.New("not a TCP socket")
}

// recoverSocket takes the public socket back from a process that has it as fd 3.
func recoverSocket(p *child.Process, port int) (*socket, error) {
	fd, err := p.Descriptor(publicFD)
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd, port: port}
	got, err := portOf(fd)
	if err == nil && got == port {
		var accepts int // a connection has the same port, but does not accept
		accepts, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		s.listening = accepts == 1
	}
	if err != nil || !s.listening {
		s.close()
		return nil, fmt.Errorf("descriptor %d of process %d is not the socket of port %d", publicFD, p.PID, port)
	}
	return s, nil
}

// listen lets connections in. On a second socket it also steers all new ones to it, away from the first one, whose
// holders are about to be drained: what waits in the queue of a socket is reset when its last holder closes it.
func (s *socket) listen() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listening {
		return nil
	}
	if err := unix.Listen(s.fd, backlog); err != nil {
		return os.NewSyscallError("listen", err)
	}
	s.listening = true
	if s.second {
		// The program answers the index of the socket among those of the port. When the first one has gone there is
		// no index 1, and the kernel chooses among what is left, which is this one.
		always := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 1}}
		prog := &unix.SockFprog{Len: 1, Filter: &always[0]}
		if err := unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, prog); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	return nil
}

// Unaccepted reports whether connections wait on the public socket of a service, which is there, that nobody has accepted.
func (g *Gateway) Unaccepted(namespace, name string) bool {
	u, err := g.unit(namespace, name, false)
	if err != nil || u == nil {
		return false
	}
	u.mu.Lock()
	s := u.socket
	u.mu.Unlock()
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info, err := unix.GetsockoptTCPInfo(s.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	return err == nil && info.Unacked > 0 // of a socket that listens: the length of its queue
}

// close gives the descriptor up; processes may go on holding the socket.
func (s *socket) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd >= 0 {
		_ = unix.Close(s.fd) // of a descriptor of our own: nothing can follow from an error
		s.fd = -1
	}
}
