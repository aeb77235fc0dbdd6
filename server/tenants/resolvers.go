package tenants

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/client/tenantdb"
	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/providers/database"
	"github.com/bcc94042/instar/providers/database/pg"
	"github.com/bcc94042/instar/streams"
)

// How many resolvers of a user of NATS may live, of one tenant and of all: each is an entry of a bucket, and whoever may acknowledge may choose names, also those of tenants. One user takes no place from another one.
const (
	maxResolvers = 256
	maxOfUser    = 65536
)

// atOnce is how many acknowledgements a node stores at once.
const atOnce = 16

// resolvers are those that live, as far as this node knows.
type resolvers struct {
	of map[group]map[string]sight // by name
	by map[string]int             // how many there are in all groups of a user
}

// group are the resolvers of a tenant that are of one user of NATS, which is "" where that is not known.
type group struct{ tenant, user string }

// groupOf is the group of a resolver: its name begins with the user.
func groupOf(tenant, name string) group {
	user, _, known := strings.Cut(name, "=")
	if !known {
		user = ""
	}
	return group{tenant, user}
}

// sight is what a resolver has acknowledged last.
type sight struct {
	epoch int64
	at    time.Time
}

// note takes an acknowledgement, or says why it is none.
func (r *resolvers) note(tenant, name string, s sight) error {
	g := groupOf(tenant, name)
	have, known := r.of[g][name]
	if known && s.at.Sub(have.at) < tenantdb.SeenLife && s.epoch < have.epoch {
		return fmt.Errorf("epoch %d is older than %d, which this resolver has acknowledged", s.epoch, have.epoch)
	}
	if !known {
		if len(r.of[g]) >= maxResolvers {
			r.drop(g, s.at)
		}
		switch {
		case len(r.of[g]) >= maxResolvers:
			return fmt.Errorf("the tenant has %d resolvers already", maxResolvers)
		case r.by[g.user] >= maxOfUser: // those that have died are forgotten in time
			return fmt.Errorf("there are %d resolvers already", maxOfUser)
		}
		r.add(g)
	}
	r.of[g][name] = s
	return nil
}

// add makes room for one more.
func (r *resolvers) add(g group) {
	if r.of == nil {
		r.of, r.by = map[group]map[string]sight{}, map[string]int{}
	}
	if r.of[g] == nil {
		r.of[g] = map[string]sight{}
	}
	r.by[g.user]++
}

// forget drops those that have died.
func (r *resolvers) forget(now time.Time) {
	for g := range r.of {
		r.drop(g, now)
	}
}

// drop drops those of a group that have died.
func (r *resolvers) drop(g group, now time.Time) {
	before := len(r.of[g])
	maps.DeleteFunc(r.of[g], func(_ string, s sight) bool { return now.Sub(s.at) >= tenantdb.SeenLife })
	if r.by[g.user] -= before - len(r.of[g]); r.by[g.user] == 0 {
		delete(r.by, g.user)
	}
	if len(r.of[g]) == 0 {
		delete(r.of, g)
	}
}

// notes stores what resolvers say that they have seen, until ctx ends. They do not write the bucket themselves: whoever may write there can take away what others have said.
func (m *mirror) notes(ctx context.Context) error {
	for {
		err := m.hear(ctx)
		if ctx.Err() != nil {
			return nil
		}
		m.log.Warn("acknowledgements of where tenants are wait a moment", "error", err)
		if !wait.For(ctx, time.Second) {
			return nil
		}
	}
}

// hear stores acknowledgements, once it knows those that there are. Other nodes do the same at once, so it follows what they store.
func (m *mirror) hear(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	m.mu.Lock()
	m.known = resolvers{}
	m.mu.Unlock()
	said := make(chan *nats.Msg, 4096) // what is lost is said again
	var sub *nats.Subscription
	defer func() {
		if sub != nil {
			_ = sub.Unsubscribe() // the connection may have ended
		}
	}()
	for e, err := range m.seen.Watch(ctx, "", 0) {
		switch {
		case errors.Is(err, kv.ErrCorrupt):
		case err != nil:
			return fmt.Errorf("cannot see who knows where tenants are: %w", err)
		case e.Synced:
			all := m.names.Seen("*", "*")
			if sub, err = m.nc.ChanQueueSubscribe(all, all, said); err != nil {
				return fmt.Errorf("cannot hear who knows where tenants are: %w", err)
			}
			tasks.Go(func() { m.attend(ctx) })
			for range atOnce {
				tasks.Go(func() { m.store(ctx, said) })
			}
		case !e.Deleted:
			if tenant, name, ok := strings.Cut(e.Key, "."); ok {
				m.mu.Lock()
				_ = m.known.note(tenant, name, sight{e.Value, time.Now()}) // it is stored already
				m.mu.Unlock()
			}
		}
	}
	return ctx.Err()
}

// attend notes that acknowledgements can be heard, for as long as they can.
func (m *mirror) attend(ctx context.Context) {
	for ok := true; ok; ok = wait.For(ctx, tenantdb.SeenLife/3) {
		_ = m.listening(ctx) // a switch sees it, and waits
	}
}

// listening notes that acknowledgements can be heard and stored now, or says why they cannot: the connection may have ended, or the bucket be without a leader, or with one that stores nothing. Where they could not for almost
// as long as they live, those that there were may have gone: until those who live have repeated theirs, it is not known who that is.
func (m *mirror) listening(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tenantdb.SeenLife/3)
	defer cancel()
	if _, err := streams.Info(ctx, m.nc, streams.BucketStream(m.names.Bucket(tenantdb.SeenBucket))); err != nil {
		return err
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if since := now.Sub(m.unstored); since < tenantdb.SeenLife/3 { // who said it says it again within that
		return fmt.Errorf("an acknowledgement was not stored %s ago", since.Round(time.Millisecond))
	}
	if !m.heard.IsZero() && now.Sub(m.heard) > tenantdb.SeenLife*2/3 {
		m.whole = now.Add(m.grace)
	}
	m.heard = now
	m.known.forget(now)
	return nil
}

// store stores what resolvers say, one after the other, until ctx ends.
func (m *mirror) store(ctx context.Context, said <-chan *nats.Msg) {
	for {
		select {
		case <-ctx.Done():
			return
		case msg := <-said:
			answer := m.acknowledged(ctx, msg)
			if inbox := streams.Inbox(msg.Reply); inbox != "" {
				_ = m.nc.Publish(inbox, answer) // who has no answer says it again
			}
		}
	}
}

// acknowledged stores what a resolver says and returns what the stream answers, or why it does not. The stream cannot answer the resolver by itself: the server refuses a message whose reply leads to
// another account.
func (m *mirror) acknowledged(ctx context.Context, msg *nats.Msg) []byte {
	key, epoch, err := m.read(msg)
	if err != nil {
		m.warn(msg.Subject, err)
		return refused(400, "it is no acknowledgement: "+err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, tenantdb.SeenLife/3)
	defer cancel()
	stored, err := m.nc.RequestWithContext(ctx, streams.BucketSubject(m.names.Bucket(tenantdb.SeenBucket), key), strconv.AppendInt(nil, epoch, 10))
	var answer struct{ Error json.RawMessage }
	if err == nil && (json.Unmarshal(stored.Data, &answer) != nil || answer.Error != nil) {
		err = errors.New(string(stored.Data))
	}
	if err != nil {
		m.mu.Lock()
		m.unstored = time.Now()
		m.mu.Unlock()
		return refused(503, "it was not stored: "+err.Error())
	}
	return stored.Data
}

// warn logs, once a minute at most, that an acknowledgement was refused: no switch waits for who has sent it.
func (m *mirror) warn(subject string, err error) {
	m.mu.Lock()
	late := time.Since(m.warned) >= time.Minute
	if late {
		m.warned = time.Now()
	}
	m.mu.Unlock()
	if late {
		m.log.Warn("an acknowledgement of where a tenant is was refused", "subject", subject, "error", err)
	}
}

// refused is an answer in the form in which a stream refuses a message.
func refused(code int, why string) []byte {
	text, _ := json.Marshal(map[string]any{"error": map[string]any{"code": code, "description": why}}) // it always marshals
	return text
}

// read is the key of an acknowledgement in the bucket, and its epoch. The name of a resolver begins with the user of NATS that it is, where that is known: it cannot be another one's.
func (m *mirror) read(msg *nats.Msg) (key string, epoch int64, err error) {
	if key, err = m.names.ParseSeen(msg.Subject); err != nil {
		return "", 0, err
	}
	if epoch, err = strconv.ParseInt(string(msg.Data), 10, 64); err != nil || epoch < 0 {
		return "", 0, errors.New("it needs an epoch, as a number")
	}
	tenant, name, _ := strings.Cut(key, ".")
	var from struct {
		Account string `json:"acc"` // that the server says; each user who may acknowledge has one
	}
	_ = json.Unmarshal([]byte(msg.Header.Get("Nats-Request-Info")), &from) // it has none where nobody has an account
	if user := strings.TrimPrefix(from.Account, "USER_"); streams.CheckToken(user) == nil {
		name = user + "=" + name
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return tenant + "." + name, epoch, m.known.note(tenant, name, sight{epoch, time.Now()})
}

// await returns when every resolver of the tenant that lives has seen the epoch. One that has died is not waited for longer than it is known. What is known of them is read anew where that breaks off.
func (m *mirror) await(outer context.Context, enterprise string, epoch int64) error {
	ctx, cancel := context.WithTimeout(outer, m.patience)
	defer cancel()
	for try := 0; ; try++ {
		if err := m.silence(ctx); err != nil {
			return err
		}
		behind, err := m.lagging(ctx, enterprise, epoch)
		switch {
		case outer.Err() != nil:
			return outer.Err()
		case err == nil:
			return nil
		case ctx.Err() != nil && len(behind) > 0:
			return &database.UnheardError{Enterprise: enterprise, Epoch: epoch, Resolvers: slices.Sorted(maps.Keys(behind))}
		case !wait.Backoff(ctx, try): // which is not to say that there is nobody
			return pg.Later(0, "cannot see who knows where tenant %s is within %s: %v", enterprise, m.patience, err)
		}
	}
}

// lagging waits for those who resolve the tenant, and have not seen the epoch. Where it fails, or its time is over, it returns those that it knows.
func (m *mirror) lagging(ctx context.Context, enterprise string, epoch int64) (behind map[string]time.Time, err error) {
	behind = map[string]time.Time{}
	after := uint64(0)
	for first := true; first || len(behind) > 0; first = false { // first who is behind; then, until the first of them dies, what they say
		next, stop := context.WithTimeout(ctx, until(behind))
		var failed error
		for e, err := range m.seen.Watch(next, enterprise+".*", after) {
			switch {
			case err != nil && !errors.Is(err, kv.ErrCorrupt):
				failed = err
			case err == nil && !e.Synced && !e.Deleted && e.Value < epoch:
				behind[e.Key] = time.Now().Add(tenantdb.SeenLife)
			default:
				delete(behind, e.Key)
			}
			after = max(after, e.Revision)
			if first && e.Synced || !first && len(behind) == 0 {
				break
			}
		}
		over := next.Err() != nil
		stop()
		switch {
		case ctx.Err() != nil:
			return behind, ctx.Err()
		case failed != nil && !over:
			return behind, failed
		}
		maps.DeleteFunc(behind, func(_ string, end time.Time) bool { return !time.Now().Before(end) })
	}
	return nil, nil
}

// silence waits until acknowledgements can be heard and stored, and all who live have been heard since the last silence.
func (m *mirror) silence(ctx context.Context) error {
	var why error
	for err := m.listening(ctx); err != nil; err = m.listening(ctx) {
		if why == nil || ctx.Err() == nil { // that the time is over tells less
			why = err
		}
		if !wait.For(ctx, time.Second) {
			return pg.Later(0, "it cannot be heard who knows where tenants are: %v", why)
		}
	}
	m.mu.Lock()
	left := time.Until(m.whole)
	m.mu.Unlock()
	if left > 0 && !wait.For(ctx, left) {
		return pg.Later(0, "no server has heard who knows where tenants are for a while; that is known in %s", left.Round(time.Second))
	}
	return nil
}

// until is how long the first of some times is away.
func until(times map[string]time.Time) time.Duration {
	wait := time.Hour
	for _, t := range times {
		wait = min(wait, time.Until(t))
	}
	return wait
}
