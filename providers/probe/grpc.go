package probe

import (
	"context"
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/bcc94042/instar/machines/instance"
)

// grpc asks grpc.health.v1.
func (p *Prober) grpc(ctx context.Context, t *instance.Target, address string) (success, error) {
	secured := insecure.NewCredentials()
	if t.Check.TLS {
		secured = credentials.NewTLS(tlsConfig(&t.Check, hostOf(address), true))
	}
	var (
		mu   sync.Mutex
		last error // why there is no connection; grpc keeps it as text only
	)
	keep := func(err error) error {
		mu.Lock()
		defer mu.Unlock()
		last = err
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(kept{secured, keep}), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithUserAgent("instar-probe"), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBody)), grpc.WithMaxHeaderListSize(maxBody),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := p.guard().Dialer().DialContext(ctx, "tcp", address)
			return conn, keep(err)
		}))
	if err != nil {
		return success{}, fail(instance.FailedConfig, "%v", err)
	}
	defer conn.Close()
	answer, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{Service: t.Check.GRPCService})
	mu.Lock()
	defer mu.Unlock()
	switch {
	case err == nil && answer.GetStatus() == health.HealthCheckResponse_SERVING:
		return success{output: answer.GetStatus().String()}, nil
	case err == nil:
		return success{}, fail(instance.FailedStatus, "%s", answer.GetStatus())
	case ctx.Err() != nil:
		return success{}, ctx.Err()
	case last != nil:
		return success{}, last
	}
	s := status.Convert(err)
	return success{}, &failure{class: instance.FailedProtocol, text: "answered with " + s.Code().String(), said: s.Message()} // which may hold a whole page
}

// kept are credentials that tell why a handshake failed.
type kept struct {
	credentials.TransportCredentials
	keep func(error) error
}

func (k kept) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := k.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err != nil && !errors.Is(err, context.Canceled) {
		err = k.keep(err)
	}
	return c, info, err
}

func (k kept) Clone() credentials.TransportCredentials {
	return kept{k.TransportCredentials.Clone(), k.keep}
}
