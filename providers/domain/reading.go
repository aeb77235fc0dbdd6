package domain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
)

// looksEvery is the time between two looks of handshakes at what is stored of a name whose certificate is due for renewal.
const looksEvery = time.Minute

var errReading = errors.New("a handshake stores nothing")

// reading is the storage of handshakes, which everybody causes as often as he likes: they load what is stored. Its locks are of nobody, and refused to a name more often than once a minute, by which certmagic goes on with what it has;
// nothing is written by it, and what a name needs is taken to be there, so that none is asked whether to obtain it.
type reading struct {
	certmagic.Storage
	now func() time.Time

	mu     sync.Mutex
	looked map[string]time.Time // by the key of the lock
}

// Lock refuses a key that it was asked for less than a minute ago.
func (r *reading) Lock(_ context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if last, ok := r.looked[key]; ok && now.Sub(last) < looksEvery {
		return fmt.Errorf("%s was looked at %s ago", key, now.Sub(last).Round(time.Second))
	}
	if len(r.looked) >= 1000 { // of names that may be gone
		for k, last := range r.looked {
			if now.Sub(last) >= looksEvery {
				delete(r.looked, k)
			}
		}
	}
	r.looked[key] = now
	return nil
}

// Unlock does nothing.
func (r *reading) Unlock(context.Context, string) error { return nil }

// Exists takes everything to be there.
func (r *reading) Exists(context.Context, string) bool { return true }

// Store refuses.
func (r *reading) Store(context.Context, string, []byte) error { return errReading }

// Delete refuses.
func (r *reading) Delete(context.Context, string) error { return errReading }
