// Package command is what all commands share: the session with a server, how it is chosen, exit codes, and the checks of arguments.
package command

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/server"
)

// Program is the binary whose commands are run: the machines that it has, what serves them, and what it is.
type Program struct{ server.Options }

// MachineOf finds a machine by its name or its plural.
func (p *Program) MachineOf(name string) (*machines.Machine, error) {
	m, err := p.Machine(name)
	if err != nil {
		return nil, Usage(err)
	}
	return m, nil
}

// Session is one run of a client command: the server, and how to answer.
type Session struct {
	*client.Client
	Program   *Program
	Ctx       context.Context
	namespace string // empty: the token's, or default
	Format    output.Format
	In        io.Reader
	Out, Err  io.Writer
	colour    bool
}

// ClientFlags declares what every command that asks a server takes.
func ClientFlags(cmd *cobra.Command) *cobra.Command {
	fs := cmd.PersistentFlags()
	fs.String("context", "", "name of a server, see instar ctx; INSTAR_CONTEXT (default: the selected one)")
	fs.String("server", "", "URL of the server; INSTAR_SERVER (default http://127.0.0.1:8080, or the address in INSTAR_HTTP)")
	fs.String("token", "", "bearer token; better in INSTAR_TOKEN, where other users of the machine do not see it")
	fs.String("ca", "", "file of the certificate authority of the server; INSTAR_CA")
	fs.StringP("namespace", "n", "", "namespace; INSTAR_NAMESPACE (default: that of the token, or \"default\")")
	fs.StringP("output", "o", "table", strings.Join(output.Formats, ", "))
	fs.Bool("no-color", false, "no colours; NO_COLOR")
	_ = cmd.RegisterFlagCompletionFunc("context", CompleteContexts)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.Formats, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that is not there
	return cmd
}

// Open reads what every client command takes, and makes its session. Nothing is asked of the server yet.
func (p *Program) Open(cmd *cobra.Command) (*Session, error) {
	words := func(flag, env string) func() (string, string) {
		v, _ := cmd.Flags().GetString(flag) // declared by clientFlags
		return func() (string, string) { return v, os.Getenv(env) }
	}
	text, _ := words("output", "")()
	format, err := output.ParseFormat(text)
	if err != nil {
		return nil, Usage(err)
	}
	at, err := given{
		context: words("context", "INSTAR_CONTEXT"), server: words("server", "INSTAR_SERVER"), token: words("token", "INSTAR_TOKEN"),
		ca: words("ca", "INSTAR_CA"), namespace: words("namespace", "INSTAR_NAMESPACE"),
	}.chosen()
	if err != nil {
		return nil, err
	}
	base, err := ServerURL(at.Server)
	if err != nil {
		return nil, err
	}
	transport, err := TransportFor(at.CA)
	if err != nil {
		return nil, err
	}
	s := &Session{
		Client:  &client.Client{Base: base, Token: at.Token, Agent: "instar/" + p.Build.Filled().Version, HTTP: &http.Client{Transport: transport}},
		Program: p, Ctx: cmd.Context(), namespace: at.Namespace, Format: format,
		In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(),
	}
	plain, _ := cmd.Flags().GetBool("no-color")
	s.colour = !plain && os.Getenv("NO_COLOR") == "" && Terminal(s.Out)
	return s, nil
}

// ServerURL is the URL that was given, or else where a server with this environment listens.
func ServerURL(given string) (string, error) {
	if given == "" {
		host, port, err := net.SplitHostPort(cmp.Or(os.Getenv("INSTAR_HTTP"), "127.0.0.1:8080"))
		if err != nil {
			return "", Usagef("INSTAR_HTTP: %w", err)
		}
		if host == "" || host == "0.0.0.0" || host == "::" {
			host = "127.0.0.1"
		}
		scheme := "http://"
		if os.Getenv("INSTAR_HTTP_CERT") != "" {
			scheme = "https://"
		}
		return scheme + net.JoinHostPort(host, port), nil
	}
	if !strings.Contains(given, "://") {
		given = "http://" + given
	}
	if u, err := url.Parse(given); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil { // a password would be in every error
		return "", Usagef("--server: that is no http or https URL without a user and a password; a token goes with --token, or in INSTAR_TOKEN")
	}
	return strings.TrimSuffix(given, "/"), nil
}

// TransportFor gives up on a server that does not begin to answer; watches and waits take longer, but begin at once.
func TransportFor(ca string) (*http.Transport, error) {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: 60 * time.Second, ForceAttemptHTTP2: true,
	}
	if ca == "" {
		return t, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, Usagef("--ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, Usagef("--ca: %s holds no certificate", ca)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

// Say tells the user something that is not the result.
func (s *Session) Say(format string, args ...any) { fmt.Fprintf(s.Err, format+"\n", args...) }

// Terminal reports whether a person sits at the other end. The null device is a character device, too.
func Terminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// Paint colours states and results when the output is a terminal.
func (s *Session) Paint(colour, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return colour + text + "\x1b[0m"
}

const (
	Red    = "\x1b[31m"
	Green  = "\x1b[32m"
	Yellow = "\x1b[33m"
)

// Scoped adds the namespace, when one was chosen.
func (s *Session) Scoped(query url.Values) url.Values {
	if query == nil {
		query = url.Values{}
	}
	if s.namespace != "" {
		query.Set("namespace", s.namespace)
	}
	return query
}

// Confirm asks a person; scripts are not asked.
func (s *Session) Confirm(question string) error {
	if !Terminal(s.In) {
		return nil
	}
	fmt.Fprintf(s.Err, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(s.In).ReadString('\n') // its end is a no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &Error{Code: ExitGeneric, Err: fmt.Errorf("not done"), Try: "the same command with -y"}
}

// ContextFor is bounded when most is not 0.
func ContextFor(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if most == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, most)
}

// Asking opens the session of a command.
func (p *Program) Asking(run func(*Session, *cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := p.Open(cmd)
		if err != nil {
			return err
		}
		return run(s, cmd, args)
	}
}

// Asked reports whether the server has answered a question of a completion, which nobody waits long for.
func (p *Program) Asked(cmd *cobra.Command, path string, query url.Values, into any) bool {
	s, err := p.Open(cmd)
	if err != nil {
		return false
	}
	ctx, stop := ContextFor(s.Ctx, 2*time.Second)
	defer stop()
	return s.JSON(ctx, client.Request{Path: path, Query: s.Scoped(query)}, into) == nil
}
