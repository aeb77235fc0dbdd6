//go:build linux

package process

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/bcc94042/instar/providers/process/probe"
)

// errStranger is of a process that does not know who steers it.
var errStranger = errors.New("the process takes no orders from this server")

// steer has a forwarder pass connections on to targets, and accept. It reports false while that needs time. One that was adopted and takes no orders is ended, for another to take its place: an earlier program has
// had it meanwhile, and did not write down the secret that it did not know of. What this program has started is not: the next one would do the same.
func (u *unit) steer(ctx context.Context, f *copied, targets []string) (done bool, err error) {
	if err = u.aim(ctx, f, targets); err == nil {
		done, err = u.activate(ctx, []*copied{f})
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !errors.Is(err, errStranger) || f.Process == nil || f.Process.Own() {
		return done, err
	}
	u.log.Warn("the forwarder is ended, and another started", "why", err)
	f.end(false)
	return false, nil
}

// aim tells the forwarder where to pass connections on to, if it does not know.
func (u *unit) aim(ctx context.Context, f *copied, targets []string) error {
	body, err := json.Marshal(targets)
	if err != nil {
		return err
	}
	u.mu.Lock()
	said := f.Address + f.Secret + string(body)
	u.mu.Unlock()
	if said != u.aimed { // only the loop uses it
		if err := u.tell(ctx, f, "/-/targets", body); err != nil {
			return err
		}
		u.aimed = said
	}
	return nil
}

// activate lets copies that share the public socket accept on it. It is done for each process that became healthy.
func (u *unit) activate(ctx context.Context, copies []*copied) (bool, error) {
	all := true
	for _, c := range copies {
		u.mu.Lock()
		address, due := c.Address, c.ready && !c.active
		all = all && (c.ready || c.active)
		socket, adopted := u.socket, c.Process != nil && !c.Process.Own()
		u.mu.Unlock()
		if !due {
			continue
		}
		if !adopted { // an adopted process accepts on the socket that it got once, maybe not on ours
			if err := socket.listen(); err != nil {
				return false, err
			}
		}
		if err := u.tell(ctx, c, "/-/activate", nil); err != nil {
			return false, err
		}
		u.mu.Lock()
		if c.Address == address {
			c.active = true
		}
		u.mu.Unlock()
	}
	return all, nil
}

// tell posts to the private socket of a process that follows the protocol of shared sockets.
func (u *unit) tell(ctx context.Context, c *copied, path string, body []byte) error {
	u.mu.Lock()
	address, mark := c.Address, cmp.Or(c.Secret, u.gateway.owner)
	u.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Instar-Owner", mark)
	resp, err := probe.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusNoContent:
		return nil
	case http.StatusForbidden:
		return errStranger
	default:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 256)) // for the message only
		return fmt.Errorf("%s was answered with %s: %s", path, resp.Status, bytes.TrimSpace(text))
	}
}
