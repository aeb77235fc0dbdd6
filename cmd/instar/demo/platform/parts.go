package platform

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/database"
	"github.com/bcc94042/instar/machines/domain"
	machine "github.com/bcc94042/instar/machines/platform"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/server/domains"
	"github.com/bcc94042/instar/server/platform"
	"github.com/bcc94042/instar/server/tenants"
)

const (
	platformDomain = "apps.example.test"
	platformPorts  = "28000-28099"
	sharedEnv      = "INSTAR_DEMO_SHARED_DSN" // addresses of databases come in the environment, because they have passwords
	ownEnv         = "INSTAR_DEMO_OWN_DSN"
	acmeEnv        = "INSTAR_DEMO_ACME"
)

// demoPlatformServer gives tenants instances until it is told to stop, which ends these as well.
func demoPlatformServer(cmd *cobra.Command, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cfg := config.Defaults(config.Dev)
	cfg.Data, cfg.HTTP.Listen, cfg.NATS.Listen, cfg.Log.Level = filepath.Join(args[0], "data"), args[1], args[3], "error"
	cfg.Outbox.Postgres, cfg.StopServices = config.PostgresOff, true
	cfg.Tenants = config.Tenants{
		Source: config.TenantSource{DSN: os.Getenv(sharedEnv)}, Servers: []config.TenantServer{{Name: "own", DSN: os.Getenv(ownEnv)}},
		Keys: filepath.Join(args[0], "keys.json"), Migrations: filepath.Join(args[0], "migrations"),
	}
	cfg.Domains = config.Domains{HTTPS: args[2], ACME: os.Getenv(acmeEnv), CA: filepath.Join(args[0], "ca.pem"), Keys: filepath.Join(args[0], "keys.json")}
	cfg.Platform.Domain, cfg.Platform.Ports, cfg.Platform.Health, cfg.Platform.Channels = platformDomain, platformPorts, "/live", map[string]string{"stable": "1.0"}
	cfg.Platform.Storage.Listen = "127.0.0.1:0" // the server is never started again
	cfg.Platform.Versions = map[string]config.Release{}
	for _, v := range []string{"1.0", "1.1", "broken"} {
		cfg.Platform.Versions[v] = config.Release{Command: []string{self, "demo", "platform-application", v}}
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM)
	defer stop()
	return server.Run(ctx, cfg, server.Options{
		Machines: []*machines.Machine{database.Machine, domain.Machine, machine.Machine}, Out: cmd.OutOrStdout(),
		Providers: map[string]server.Provider{database.Machine.Name: tenants.Provider(), domain.Machine.Name: domains.Provider(), machine.Machine.Name: platform.Provider()},
	})
}

// demoPlatformApplication is that of the tenants: each request writes an order into the tenant's database, and its receipt into the tenant's bucket, and says how many there are.
func demoPlatformApplication(cmd *cobra.Command, args []string) error {
	cmd.SilenceUsage = true
	if args[0] == "broken" {
		return errors.New("this version has a mistake")
	}
	l, err := net.FileListener(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // #nosec G112 -- behind the proxy
		if r.URL.Path == "/live" {
			return
		}
		orders, err := order(r.Context(), r.Method == http.MethodPost)
		receipts := ""
		if err == nil {
			receipts, err = receipt(r.Context(), orders, r.Method == http.MethodPost)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintf(w, "version %s of %s: %s, %s", args[0], os.Getenv("TENANT_ID"), orders, receipts)
	})}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { _ = srv.Shutdown(context.WithoutCancel(ctx)) })
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// order counts the orders of the tenant, after it has written one if that is wanted.
func order(ctx context.Context, write bool) (text string, err error) {
	at, err := os.ReadFile(os.Getenv("DATABASE_URL_FILE"))
	if err != nil {
		return "", err
	}
	conn, err := pgx.Connect(ctx, string(at))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is under way
	if write {
		if _, err := conn.Exec(ctx, `insert into public.orders (id, enterprise_id) values (gen_random_uuid(), $1)`, os.Getenv("TENANT_ID")); err != nil {
			return "", err
		}
	}
	err = conn.QueryRow(ctx, `select count(*) || ' orders in ' || current_database() from public.orders`).Scan(&text)
	return text, err
}

// receipt counts the receipts of the tenant, after it has written one if that is wanted.
func receipt(ctx context.Context, what string, write bool) (string, error) {
	at, err := url.Parse(os.Getenv("STORAGE_ENDPOINT"))
	if err != nil {
		return "", err
	}
	bucket := os.Getenv("STORAGE_BUCKET")
	c, err := minio.New(at.Host, &minio.Options{Creds: credentials.NewFileAWSCredentials("", ""), BucketLookup: minio.BucketLookupPath}) // of AWS_SHARED_CREDENTIALS_FILE
	if err != nil {
		return "", err
	}
	if write {
		name := "receipts/" + rand.Text()
		if _, err := c.PutObject(ctx, bucket, name, strings.NewReader(what), int64(len(what)), minio.PutObjectOptions{}); err != nil {
			return "", err
		}
	}
	n := 0
	for o := range c.ListObjects(ctx, bucket, minio.ListObjectsOptions{Prefix: "receipts/"}) {
		if o.Err != nil {
			return "", o.Err
		}
		n++
	}
	return fmt.Sprintf("%d receipts in %s", n, bucket), nil
}

// Commands show instances of tenants: the demo, its server and its application.
func Commands() []*cobra.Command {
	cmd := &cobra.Command{
		Use: "platform", Short: "Three tenants get instances of their own; one is upgraded, one is broken, one leaves", Args: command.Arguments(),
		Long: `Starts a private Postgres, a certificate authority and a server. Three tenants get a database, a bucket, a process of an application, a name and a
certificate each, and are opened through the proxy over TLS. One gets another version; the next version of another one is broken, and is withdrawn; the third one leaves, and
nothing of it may be left; its database is put aside first, and dropped by the sweep of 7 days later, which is made at once here. It needs initdb and postgres, and leaves nothing behind. The exit code is 1 when anything is not as it should be.`,
		Example: "  instar demo platform",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return newPlatformDemo(cmd.OutOrStdout()).run(cmd.Context())
		},
	}
	server := &cobra.Command{Use: "platform-server DIR LISTEN PROXY NATS", Short: "The server of a demo", Hidden: true, Args: command.Arguments("DIR", "LISTEN", "PROXY", "NATS"), RunE: demoPlatformServer}
	app := &cobra.Command{Use: "platform-application VERSION", Short: "The application of a demo", Hidden: true, Args: command.Arguments("VERSION"), RunE: demoPlatformApplication}
	return []*cobra.Command{cmd, server, app}
}
