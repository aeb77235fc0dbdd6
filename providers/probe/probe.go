package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/providers/guard"
)

// Options say where probes may go and what they may do.
type Options struct {
	Deny  []netip.Prefix // refused, besides what always is
	Allow []netip.Prefix // allowed, although it would be refused; Deny is stronger
	// Own are the listeners of this program when a probe begins; refused on every address of this host. Nil is none.
	Own     func() []netip.AddrPort
	Scripts bool // allow script: whoever may register runs programs as this user
	// AnyRequest allows requests that say more than GET or HEAD of a path: other methods, headers but Host, and bodies, of
	// HTTP and of UDP. Whoever may register then writes where probes may go.
	AnyRequest bool
	// Match allows checks that look for an expression in an answer. Whoever may register then reads, question by question,
	// what is answered where probes may go: whether it matches decides whether an instance is healthy.
	Match bool
	// Log is told, at the level debug, the beginning of what an instance said when its probe failed. Nobody else is; nil
	// discards it.
	Log *slog.Logger
}

// Prober probes. Its zero value is ready; it may be used by many goroutines.
type Prober struct {
	Options

	resolver *net.Resolver // nil is that of the system

	mu       sync.Mutex
	patterns map[string]*regexp.Regexp
}

func (p *Prober) guard() *guard.Guard {
	return &guard.Guard{Deny: p.Deny, Allow: p.Allow, Own: p.Own, Resolver: p.resolver}
}

// MaxOutput bounds the output of a result, in bytes.
const MaxOutput = 512

// maxBody is what is read of an answer.
const maxBody = 64 << 10

// defaultTimeout is that of a check that names none.
const defaultTimeout = 2 * time.Second

// failure is a probe that did not pass.
type failure struct {
	class  string
	status int
	text   string // for whoever may read the instance: nothing of what the other side said
	said   string // by the other side, for the log
}

func (f *failure) Error() string { return f.text }

func fail(class, format string, args ...any) error {
	return &failure{class: class, text: fmt.Sprintf(format, args...)}
}

// success is a probe that passed.
type success struct {
	status int
	output string
}

// Check probes once and returns when it is decided, at the latest at the timeout. It never panics on what the other side
// sends.
func (p *Prober) Check(ctx context.Context, t instance.Target) instance.Result {
	timeout := t.Timeout
	if timeout <= 0 {
		if d, err := time.ParseDuration(t.Check.Timeout); err == nil {
			timeout = d
		}
		timeout = cmp.Or(max(timeout, 0), defaultTimeout)
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s, err := p.look(ctx, &t)
	r := instance.Result{OK: err == nil, Status: s.status, Output: s.output, Latency: time.Since(start)}
	if err != nil {
		r.Class, r.Output = classify(ctx, err)
		var f *failure
		if errors.As(err, &f) {
			r.Status = f.status
			if f.said != "" && p.logs(ctx) {
				p.Log.Debug("a probe failed", "instance", t.Key, "class", f.class, "reason", f.text, "answer", clean(f.said))
			}
		}
		if r.Class == instance.FailedTimeout {
			r.Output = fmt.Sprintf("no answer within %s", timeout)
		}
		r.Output = cmp.Or(r.Output, r.Class)
	}
	r.Output = clean(r.Output)
	return r
}

// logs says whether anybody is told what was answered.
func (p *Prober) logs(ctx context.Context) bool {
	return p.Log != nil && p.Log.Enabled(ctx, slog.LevelDebug)
}

// probes are the probes, by the kind of check: one for each whose source is [instance.Probes].
var probes = map[string]func(*Prober, context.Context, *instance.Target, string) (success, error){
	instance.CheckHTTP:   (*Prober).http,
	instance.CheckTCP:    (*Prober).tcp,
	instance.CheckGRPC:   (*Prober).grpc,
	instance.CheckUDP:    (*Prober).udp,
	instance.CheckScript: (*Prober).script,
}

func (p *Prober) look(ctx context.Context, t *instance.Target) (success, error) {
	address, err := where(&t.Check, t.Address)
	if err != nil {
		return success{}, fail(instance.FailedConfig, "%v", err)
	}
	if err := p.permit(&t.Check); err != nil {
		return success{}, fail(instance.FailedForbidden, "%v", err)
	}
	probe := probes[t.Check.Type]
	if probe == nil {
		return success{}, fail(instance.FailedConfig, "check type %q is no probe", t.Check.Type)
	}
	return probe(p, ctx, t, address)
}

// where is the address to probe: that of the instance, with the check's own port if it has one.
func where(c *instance.Check, address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("address %q is not host:port", address)
	}
	if c.Port != 0 {
		port = strconv.Itoa(c.Port)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return "", fmt.Errorf("address %q is not host:port", address)
	}
	return net.JoinHostPort(host, port), nil
}

// Admit says why a check of that address could never be carried out, or nil. Names are not resolved: where they lead is
// checked by each probe.
func (p *Prober) Admit(c instance.Check, address string) error {
	if instance.SourceOf(c.Type) != instance.Probes {
		return nil
	}
	to, err := where(&c, address)
	if err != nil {
		return err
	}
	if c.Type == instance.CheckScript {
		if !p.Scripts {
			return errors.New("checks of type script are not enabled in the configuration")
		}
		if len(c.Command) == 0 || c.Command[0] == "" {
			return errors.New("a check of type script needs a command")
		}
		return nil
	}
	if ap, err := netip.ParseAddrPort(to); err == nil {
		if err := p.guard().Admit(ap); err != nil {
			return err
		}
	}
	if _, err := p.pattern(c.Match); err != nil {
		return err
	}
	if err := p.permit(&c); err != nil {
		return err
	}
	if c.Type == instance.CheckHTTP {
		return admitHTTP(&c)
	}
	return nil
}

// permit says why a check would write or read more than it may.
func (p *Prober) permit(c *instance.Check) error {
	if c.Match != "" && !p.Match && (c.Type == instance.CheckHTTP || c.Type == instance.CheckUDP) {
		return errors.New("checks with match are not enabled in the configuration (discovery.probe.match)")
	}
	if p.AnyRequest {
		return nil
	}
	what := ""
	switch {
	case c.Type == instance.CheckUDP && c.Body != "", c.Type == instance.CheckHTTP && c.Body != "":
		what = "a body"
	case c.Type == instance.CheckHTTP && !slices.Contains([]string{"", http.MethodGet, http.MethodHead}, c.Method):
		what = "the method " + c.Method
	case c.Type == instance.CheckHTTP:
		for name := range c.Headers {
			if !strings.EqualFold(name, "Host") {
				what = "headers"
			}
		}
	}
	if what != "" {
		return fmt.Errorf("checks with %s are not enabled in the configuration (discovery.probe.anyRequest)", what)
	}
	return nil
}

func admitHTTP(c *instance.Check) error {
	if c.Path != "" && !strings.HasPrefix(c.Path, "/") {
		return fmt.Errorf("path %q does not begin with /", c.Path)
	}
	if _, err := target(c, "host:1"); err != nil {
		return fmt.Errorf("path %q: %w", c.Path, err)
	}
	for name, value := range c.Headers {
		if name == "" || strings.ContainsFunc(name, notToken) || strings.ContainsFunc(value, unicode.IsControl) {
			return fmt.Errorf("header %q: %q is not valid", name, value)
		}
		if strings.EqualFold(name, "Host") && strings.ContainsAny(value, " /\\?#@") {
			return fmt.Errorf("header Host: %q is not valid", value)
		}
	}
	return nil
}

// notToken says of a character that it belongs in no name of a header (RFC 9110, 5.6.2).
func notToken(r rune) bool {
	return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", r)
}

// pattern compiles an expression; nil matches everything. The few that are in use are kept.
func (p *Prober) pattern(expr string) (*regexp.Regexp, error) {
	if expr == "" {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if re := p.patterns[expr]; re != nil {
		return re, nil
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, fmt.Errorf("match %q: %w", expr, err)
	}
	if len(p.patterns) >= 256 || p.patterns == nil {
		p.patterns = map[string]*regexp.Regexp{}
	}
	p.patterns[expr] = re
	return re, nil
}

// match says whether an answer is as asked for.
func (p *Prober) match(expr string, answer []byte) error {
	re, err := p.pattern(expr)
	if err != nil {
		return fail(instance.FailedConfig, "%v", err)
	}
	if re != nil && !re.Match(answer) {
		return &failure{class: instance.FailedMatch, text: fmt.Sprintf("the answer does not match %q", expr), said: string(answer[:min(len(answer), MaxOutput)])}
	}
	return nil
}

// classify names the kind of an error and says it without what differs from try to try.
func classify(ctx context.Context, err error) (class, text string) {
	var (
		f    *failure
		name *net.DNSError
		sys  syscall.Errno
		cert *tls.CertificateVerificationError
		rec  tls.RecordHeaderError
		warn tls.AlertError
		op   *net.OpError
	)
	switch {
	case errors.As(err, &f):
		return f.class, f.text
	case errors.Is(err, guard.ErrForbidden):
		for errors.As(err, &op) && op.Err != err {
			err = op.Err
		}
		return instance.FailedForbidden, err.Error()
	case errors.As(err, &name):
		return instance.FailedResolve, fmt.Sprintf("cannot resolve %s", name.Name)
	case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return instance.FailedTimeout, "no answer in time"
	case errors.As(err, &cert), errors.As(err, &rec), errors.As(err, &warn):
		return instance.FailedTLS, err.Error()
	case errors.As(err, &sys):
		switch sys {
		case syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE:
			return instance.FailedRefused, sys.Error()
		}
		return instance.FailedUnreachable, sys.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return instance.FailedRefused, "the connection was closed before an answer"
	case strings.HasPrefix(err.Error(), "tls: "):
		return instance.FailedTLS, err.Error()
	}
	return instance.FailedProtocol, err.Error()
}

// clean makes an output that is safe to store and to print.
func clean(s string) string {
	s = s[:min(len(s), 4*MaxOutput)]
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r' || r == '\u2028' || r == '\u2029':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.TrimSpace(s)
	for len(s) > MaxOutput {
		s = strings.ToValidUTF8(s[:MaxOutput], "")
	}
	return s
}
