// Package s3 is what clients of stores that speak S3 have in common.
package s3

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"
)

// Silent is for how long a connection to a store of S3 may have nothing to read or to write while something is awaited: longer than the minute in which the client of S3 wants an answer to begin.
const Silent = 90 * time.Second

// Transport is that of a client of S3, where a store that says nothing more in the middle of a body, or takes nothing more of one, is given up within a time: the client waits for both until
// its context ends, however much time that has. 0 is [Silent].
func Transport(secure bool, within time.Duration) (*http.Transport, error) {
	t, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, err
	}
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &spoken{c, cmp.Or(within, Silent)}, nil
	}
	return t, nil
}

// spoken is a connection that fails when nothing has come or gone for too long. One that waits for the next request does so, too, and is made again then.
type spoken struct {
	net.Conn
	within time.Duration
}

func (s *spoken) Read(p []byte) (int, error) { return s.speaks(s.Conn.Read, p) }

func (s *spoken) Write(p []byte) (int, error) { return s.speaks(s.Conn.Write, p) }

func (s *spoken) speaks(do func([]byte) (int, error), p []byte) (int, error) {
	if err := s.SetDeadline(time.Now().Add(s.within)); err != nil { // of the other direction as well: an answer may come after a long body alone
		return 0, err
	}
	return do(p)
}
