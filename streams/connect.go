package streams

// Connections to NATS. Connect opens one, to the embedded server or to a URL, with the settings that everything here relies on; it refuses a server that is too old, and watches
// a remote one for a JetStream that does not answer (isolated.go). JetStream opens JetStream on a connection. Errors show addresses without secrets; an UnreachableError says
// that no server answers.

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// MinServer is the oldest nats-server that will do: it resets consumers and fires message schedules.
const MinServer = "2.14.0"

// Embedded is a NATS server in this process, as package embedded starts one.
type Embedded interface {
	// InProcessConn connects to the server without a socket.
	InProcessConn() (net.Conn, error)
	// LoopbackURL is where this process connects over TCP, or empty where it connects in process.
	LoopbackURL() string
	// Credentials are those of this process, or empty where everybody may connect.
	Credentials() (user, password string)
}

// ConnectOptions say where NATS is.
type ConnectOptions struct {
	Server Embedded // the one in this process, or nil
	URL    string   // of another one
	Creds  string   // credentials file; this and what follows are for URL
	CA     string   // file of the certificate authority
	Cert   string   // client certificate and key, files
	Key    string
	Dial   func(...nats.Option) (*nats.Conn, error) // connects instead, by settings of its own; URL is then what messages call it
	Name   string                                   // shown by nats server report connections
	Log    *slog.Logger

	ask time.Duration // between the questions to JetStream behind URL; 0 is 2 s
}

// Connect opens a connection as this program needs it: it never gives up reconnecting, it does not buffer while it is
// disconnected (a publish that returned an error must not be stored seconds later), and it finds a dead peer within
// 10 s. With URL it leaves a server behind which JetStream has not answered three times in a row (within 15 s), for the next
// one of the URL. It refuses a server that is older than [MinServer].
func Connect(o ConnectOptions) (*nats.Conn, error) {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	opts := []nats.Option{
		nats.Name("instar " + o.Name), nats.CustomInboxPrefix("_INBOX_instar"), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
		nats.ReconnectWait(100 * time.Millisecond), nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2), nats.Timeout(10 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("connection to NATS lost; reconnecting", "connection", o.Name, "nats", o.at(), "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("reconnected to NATS", "connection", o.Name, "server", nc.ConnectedServerName())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			log.Warn("NATS reports an error", "connection", o.Name, "subject", subject, "error", err)
		}),
	}
	url := o.URL
	if o.Server != nil {
		if url = o.Server.LoopbackURL(); url == "" {
			opts = append(opts, nats.InProcessServer(o.Server))
		}
		if user, password := o.Server.Credentials(); user != "" {
			opts = append(opts, nats.UserInfo(user, password))
		}
		opts = append(opts, nats.IgnoreDiscoveredServers()) // a process whose own server is away is away
	}
	if o.Server == nil && o.Creds != "" {
		opts = append(opts, nats.UserCredentials(o.Creds))
	}
	if o.Server == nil && o.CA != "" {
		opts = append(opts, nats.RootCAs(o.CA))
	}
	if o.Server == nil && o.Cert != "" { // of the embedded server it is the listener's
		opts = append(opts, nats.ClientCert(o.Cert, o.Key))
	}
	dial := func(opts ...nats.Option) (*nats.Conn, error) { return nats.Connect(url, opts...) }
	if o.Server == nil && o.Dial != nil {
		dial = o.Dial
	}
	nc, err := dial(opts...)
	if err != nil {
		return nil, notConnected(o.at(), err)
	}
	if v := nc.ConnectedServerVersion(); older(v, MinServer) {
		nc.Close()
		return nil, fmt.Errorf("streams: NATS at %s is version %s, %s or later is needed (consumer reset, message schedules)", o.at(), v, MinServer)
	}
	if o.Server == nil { // the embedded one is the only one to talk to
		every := cmp.Or(o.ask, 2*time.Second)
		go watchdog{nc: nc, log: log, every: every, within: every * 3 / 2}.run(nc.StatusChanged(nats.CLOSED))
	}
	return nc, nil
}

// JetStream opens JetStream on a connection, with requests that end after 5 s.
func JetStream(nc *nats.Conn) (jetstream.JetStream, error) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(5*time.Second))
	if err != nil {
		return nil, fmt.Errorf("streams: %w", err)
	}
	return js, nil
}

// at is where NATS is, in words that may be shown: without passwords.
func (o *ConnectOptions) at() string {
	if o.Server != nil {
		return "the embedded server"
	}
	return WithoutSecrets(o.URL)
}

// WithoutSecrets is a list of URLs without the users, passwords and tokens in them.
func WithoutSecrets(urls string) string {
	list := strings.Split(urls, ",")
	for i, u := range list {
		if at := strings.LastIndexByte(u, '@'); at >= 0 {
			scheme, _, ok := strings.Cut(u, "://")
			if list[i] = u[at+1:]; ok {
				list[i] = scheme + "://" + list[i]
			}
		}
	}
	return strings.Join(list, ",")
}

// UnreachableError says that no NATS server answers.
type UnreachableError struct {
	At  string // where it should be
	Err error
}

func (e *UnreachableError) Error() string {
	why, malformed := e.Err.Error(), (*url.Error)(nil)
	switch {
	case errors.Is(e.Err, nats.ErrNoServers): // which is all that the client says of a refused connection
		why = "nothing listens there"
	case errors.As(e.Err, &malformed): // it would repeat the URL with its password
		why = "that is no URL"
	}
	return "cannot reach NATS at " + e.At + ": " + strings.TrimPrefix(why, "nats: ")
}

// Unwrap gives why it cannot be reached.
func (e *UnreachableError) Unwrap() error { return e.Err }

// notConnected distinguishes a server that does not answer from one that refuses.
func notConnected(at string, err error) error {
	var network net.Error
	if errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) || errors.As(err, &network) {
		return &UnreachableError{at, err}
	}
	return fmt.Errorf("streams: cannot connect to NATS at %s: %w", at, err)
}

// older compares versions such as 2.14.0-RC.1 by their three numbers; what it cannot read is not older.
func older(have, want string) bool {
	h, errH := numbers(have)
	w, errW := numbers(want)
	if errH != nil || errW != nil {
		return false
	}
	for i := range w {
		if h[i] != w[i] {
			return h[i] < w[i]
		}
	}
	return false
}

func numbers(v string) ([3]int, error) {
	var n [3]int
	v, _, _ = strings.Cut(strings.TrimPrefix(v, "v"), "-")
	parts := strings.Split(v, ".")
	if len(parts) != 3 {
		return n, errors.New("not three numbers")
	}
	for i, p := range parts {
		x, err := strconv.Atoi(p)
		if err != nil {
			return n, err
		}
		n[i] = x
	}
	return n, nil
}
