package main

import (
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
)

// session is one run of a client command: the server, and how to answer.
type session struct {
	*client.Client
	ctx       context.Context
	namespace string // empty: the token's, or default
	format    output.Format
	in        io.Reader
	out, err  io.Writer
	colour    bool
}

// clientFlags declares what every command that asks a server takes.
func clientFlags(cmd *cobra.Command) *cobra.Command {
	fs := cmd.PersistentFlags()
	fs.String("context", "", "name of a server, see instar ctx; INSTAR_CONTEXT (default: the selected one)")
	fs.String("server", "", "URL of the server; INSTAR_SERVER (default http://127.0.0.1:8080, or the address in INSTAR_HTTP)")
	fs.String("token", "", "bearer token; better in INSTAR_TOKEN, where other users of the machine do not see it")
	fs.String("ca", "", "file of the certificate authority of the server; INSTAR_CA")
	fs.StringP("namespace", "n", "", "namespace; INSTAR_NAMESPACE (default: that of the token, or \"default\")")
	fs.StringP("output", "o", "table", strings.Join(output.Formats, ", "))
	fs.Bool("no-color", false, "no colours; NO_COLOR")
	_ = cmd.RegisterFlagCompletionFunc("context", completeContexts)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.Formats, cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that is not there
	return cmd
}

func open(cmd *cobra.Command) (*session, error) {
	words := func(flag, env string) func() (string, string) {
		v, _ := cmd.Flags().GetString(flag) // declared by clientFlags
		return func() (string, string) { return v, os.Getenv(env) }
	}
	text, _ := words("output", "")()
	format, err := output.ParseFormat(text)
	if err != nil {
		return nil, usage(err)
	}
	at, err := given{
		context: words("context", "INSTAR_CONTEXT"), server: words("server", "INSTAR_SERVER"), token: words("token", "INSTAR_TOKEN"),
		ca: words("ca", "INSTAR_CA"), namespace: words("namespace", "INSTAR_NAMESPACE"),
	}.chosen()
	if err != nil {
		return nil, err
	}
	base, err := serverURL(at.Server)
	if err != nil {
		return nil, err
	}
	transport, err := transportFor(at.CA)
	if err != nil {
		return nil, err
	}
	s := &session{
		Client: &client.Client{Base: base, Token: at.Token, Agent: "instar/" + thisBuild().Version, HTTP: &http.Client{Transport: transport}},
		ctx:    cmd.Context(), namespace: at.Namespace, format: format,
		in: cmd.InOrStdin(), out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(),
	}
	plain, _ := cmd.Flags().GetBool("no-color")
	s.colour = !plain && os.Getenv("NO_COLOR") == "" && terminal(s.out)
	return s, nil
}

// serverURL is the URL that was given, or else where a server with this environment listens.
func serverURL(given string) (string, error) {
	if given == "" {
		host, port, err := net.SplitHostPort(cmp.Or(os.Getenv("INSTAR_HTTP"), "127.0.0.1:8080"))
		if err != nil {
			return "", usagef("INSTAR_HTTP: %w", err)
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
		return "", usagef("--server: that is no http or https URL without a user and a password; a token goes with --token, or in INSTAR_TOKEN")
	}
	return strings.TrimSuffix(given, "/"), nil
}

// transportFor gives up on a server that does not begin to answer; watches and waits take longer, but begin at once.
func transportFor(ca string) (*http.Transport, error) {
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: 60 * time.Second, ForceAttemptHTTP2: true,
	}
	if ca == "" {
		return t, nil
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, usagef("--ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, usagef("--ca: %s holds no certificate", ca)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return t, nil
}

// say tells the user something that is not the result.
func (s *session) say(format string, args ...any) { fmt.Fprintf(s.err, format+"\n", args...) }

// terminal reports whether a person sits at the other end. The null device is a character device, too.
func terminal(stream any) bool {
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

// paint colours states and results when the output is a terminal.
func (s *session) paint(colour, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return colour + text + "\x1b[0m"
}

const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)
