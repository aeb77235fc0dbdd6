//go:build linux

package process

import (
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/bcc94042/instar/internal/ownfile"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/providers"
)

// soon is when a request should come again that has to wait for processes to end.
const soon = 500 * time.Millisecond

// fence refuses a request that is older than one seen, and remembers it otherwise. The lock is held.
func (u *unit) fence(r *providers.Request) error {
	if r.Fence < u.state.Fence {
		return providers.Older(r.Fence, u.state.Fence)
	}
	u.state.Fence = r.Fence
	return nil
}

// Apply makes the specification the wanted one. The loop of the service does the rest.
func (g *Gateway) Apply(ctx context.Context, req providers.ApplyRequest) (service.Applied, error) {
	if err := req.Check(ctx); err != nil {
		return service.Applied{}, err
	}
	if err := g.config.checkSpec(&req.Spec); err != nil {
		return service.Applied{}, err
	}
	u, err := g.unit(req.Namespace, req.Name, true)
	if err != nil {
		return service.Applied{}, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.fence(&req.Request); err != nil {
		return service.Applied{}, err
	}
	s := u.state
	switch {
	case s.Deleting:
		return service.Applied{}, providers.Later(soon, "the service is being deleted")
	case !s.Gone && s.Life != req.UID:
		s.Deleting = true
		u.wake()
		return service.Applied{}, providers.Later(soon, "the service of an earlier life has to end first")
	case s.Gone:
		err = u.create(&req)
	default:
		err = u.update(&req)
	}
	if err != nil {
		return service.Applied{}, err
	}
	return u.applied(), nil
}

func (u *unit) applied() service.Applied {
	s := u.state
	return service.Applied{UID: s.UID, Generation: s.Generation, ResourceVersion: strconv.FormatUint(s.Writes, 10), Hash: s.Hash}
}

// create begins a new life, with a socket of its own. The lock is held.
func (u *unit) create(req *providers.ApplyRequest) error {
	public, err := u.listen(req.Spec.Port)
	if errors.Is(err, syscall.EACCES) {
		return providers.Errorf(providers.Invalid, "port %d is not for this user: %v", req.Spec.Port, err)
	}
	if err != nil {
		return providers.Later(5*time.Second, "%v", err)
	}
	before := u.state
	u.state = &state{
		Namespace: req.Namespace, Name: req.Name, Fence: req.Fence, Writes: before.Writes,
		Life: req.UID, UID: uuid.NewString(), Port: public.port,
	}
	err = os.MkdirAll(u.dir, 0o700)
	if err == nil {
		err = u.want(req)
	}
	if err != nil {
		u.state = before
		public.close()
		u.gateway.ports.Drop(u)
		return providers.Errorf(providers.Internal, "cannot store the service: %v", err)
	}
	u.socket = public
	u.gateway.mu.Lock()
	defer u.gateway.mu.Unlock()
	if u.gateway.closed {
		return providers.Errorf(providers.Unavailable, "the gateway is closed")
	}
	u.gateway.begin(u)
	return nil
}

// update wants another specification. The same one again changes nothing, nor does the same demand for a replacement.
// The lock is held.
func (u *unit) update(req *providers.ApplyRequest) error {
	s := u.state
	if req.Spec.Port != 0 && req.Spec.Port != s.Port {
		return providers.Errorf(providers.Invalid, "port: %d cannot become %d during the life of a service", s.Port, req.Spec.Port)
	}
	if s.Hash == req.Hash && (!req.Spec.ForceReplace || s.Wanted >= req.Generation) {
		return nil
	}
	if now := s.latest(); now != nil && now.Socket == SocketPublic || u.gateway.config.Templates[req.Spec.Image].Socket == SocketPublic {
		return providers.Errorf(providers.Invalid, "what has the public socket for itself does not change while it is there: delete %s, or make another one beside it", u.key)
	}
	before := *s
	if err := u.want(req); err != nil {
		*s = before
		return providers.Errorf(providers.Internal, "cannot store the service: %v", err)
	}
	u.wake()
	return nil
}

// want stores a new generation. The lock is held.
func (u *unit) want(req *providers.ApplyRequest) error {
	s := u.state
	s.Generation++
	s.Hash, s.Spec, s.Wanted = req.Hash, req.Spec, req.Generation
	return u.save()
}

// Delete begins to end everything of the service.
func (g *Gateway) Delete(ctx context.Context, req providers.DeleteRequest) error {
	if err := req.Check(ctx); err != nil {
		return err
	}
	// Also of a name that was never seen the fence is kept: an apply may still be on its way.
	u, err := g.unit(req.Namespace, req.Name, true)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	known := u.state.Fence
	if err := u.fence(&req.Request); err != nil {
		return err
	}
	s := u.state
	if !s.Gone {
		s.Deleting, s.Force, u.left = true, s.Force || req.Force, ""
	}
	if s.Gone && known == req.Fence {
		return nil
	}
	err = os.MkdirAll(u.dir, 0o700)
	if err == nil {
		err = u.save()
	}
	if err != nil {
		return providers.Errorf(providers.Internal, "cannot store the deletion: %v", err)
	}
	u.wake()
	return nil
}

// bury makes a tombstone of the state: it keeps the fence for later lives. The lock is held.
func (u *unit) bury() error {
	s := u.state
	if err := errors.Join(u.buryLogs(), ownfile.RemoveAll(u.home())); err != nil {
		return err
	}
	u.state = &state{Namespace: s.Namespace, Name: s.Name, Fence: s.Fence, Writes: s.Writes, Gone: true, Life: s.Life, UID: s.UID}
	if err := u.save(); err != nil {
		u.state = s
		return err
	}
	if u.socket != nil {
		u.socket.close()
		u.socket = nil
	}
	u.gateway.ports.Drop(u)
	u.aimed, u.left = "", ""
	u.log.Info("service is gone")
	return nil
}
