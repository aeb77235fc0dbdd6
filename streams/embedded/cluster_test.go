package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/internal/testenv"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// threeMembers starts a cluster on loopback.
func threeMembers(t *testing.T, change ...func(*Options)) []*Server {
	t.Helper()
	dir := t.TempDir()
	var routes []string
	for range 3 {
		routes = append(routes, "nats://"+testenv.Address(t))
	}
	members := make([]*Server, 3)
	for i := range members {
		o := Options{
			Dir: filepath.Join(dir, fmt.Sprint(i)), Listen: "127.0.0.1:0", Open: true, Profile: Interval, Name: fmt.Sprintf("node-%d", i), Log: slog.New(slog.DiscardHandler),
			Cluster: &ClusterOptions{Name: "test", Listen: routes[i][len("nats://"):], Routes: routes, User: "member", Password: "secret"},
		}
		for _, f := range change {
			f(&o)
		}
		var err error
		members[i], err = Start(o)
		require.NoError(t, err)
		t.Cleanup(func() { _ = members[i].Shutdown(context.Background()) })
	}
	return members
}

func TestClusterKeepsWhatItTookWhenAMemberDies(t *testing.T) {
	t.Parallel()
	members := threeMembers(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	plan := streams.Plan{Replicas: 3, States: []string{"things"}}
	var all sync.WaitGroup
	for _, m := range members { // each node makes sure of the streams when it starts
		all.Go(func() {
			nc, err := streams.Connect(streams.ConnectOptions{Server: m, Name: "test"})
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			js, err := streams.JetStream(nc)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := streams.AwaitCluster(ctx, nc, js, plan, slog.New(slog.DiscardHandler)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.False(t, t.Failed())
	nc, err := streams.Connect(streams.ConnectOptions{Server: members[2], Name: "test"})
	require.NoError(t, err)
	defer nc.Close()
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	info, err := js.AccountInfo(ctx)
	require.NoError(t, err)
	var lead []int
	require.Eventually(t, func() bool {
		lead = nil
		sum := 0
		for _, m := range members {
			n, _, _, err := m.Leads()
			lead, sum = append(lead, n), sum+n
			if err != nil {
				return false
			}
		}
		return sum == info.Streams
	}, 30*time.Second, 50*time.Millisecond, "each stream has one leader")
	t.Logf("of %d streams the members lead %v", info.Streams, lead)
	a, err := publish.NewAppender(nc, publish.AppenderOptions{})
	require.NoError(t, err)
	defer a.Close()
	put := func(value string, revision uint64) publish.Result {
		m := &nats.Msg{Subject: "$KV.things.default.a", Data: []byte(value), Header: nats.Header{}}
		streams.Expect(m, revision)
		return a.Append(ctx, []publish.Write{{Stream: "KV_things", Msg: m}})[0]
	}
	first := put("one", 0)
	require.NoError(t, first.Err)
	require.ErrorIs(t, put("other", 0).Err, publish.ErrConflict)

	began := time.Now()
	require.NoError(t, members[0].Shutdown(ctx))
	t.Logf("a member leaves in %s", time.Since(began))
	var second publish.Result
	require.Eventually(t, func() bool {
		second = put("two", first.Seq)
		return second.Err == nil || second.Seq != 0
	}, 20*time.Second, 50*time.Millisecond)
	t.Logf("the next write after %s", time.Since(began))
	s, err := js.Stream(ctx, "KV_things")
	require.NoError(t, err)
	m, err := s.GetLastMsgForSubject(ctx, "$KV.things.default.a")
	require.NoError(t, err)
	require.Equal(t, "two", string(m.Data))
}

func TestTheModeOfADirectoryIsKept(t *testing.T) {
	t.Parallel()
	o := Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Open: true, Profile: OS}
	s, err := Start(o)
	require.NoError(t, err)
	require.NoError(t, s.Shutdown(t.Context()))
	member := o
	member.Cluster = &ClusterOptions{Name: "blue", Listen: testenv.Address(t), Routes: []string{"nats://" + testenv.Address(t)}}
	_, err = Start(member)
	require.ErrorContains(t, err, `was written by a single server, and this is the start of a member of the cluster blue`)

	member.Dir = t.TempDir()
	s, err = Start(member)
	require.NoError(t, err)
	require.NoError(t, s.Shutdown(t.Context()))
	o.Dir = member.Dir
	_, err = Start(o)
	require.ErrorContains(t, err, `was written by a member of the cluster blue, and this is the start of a single server`)
	member.Cluster = &ClusterOptions{Name: "green", Listen: testenv.Address(t)}
	_, err = Start(member)
	require.ErrorContains(t, err, "a member of the cluster green")
}

func TestAMemberAloneSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	s, err := Start(Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Open: true, Profile: OS, Cluster: &ClusterOptions{Name: "test", Listen: testenv.Address(t), Routes: []string{"nats://" + testenv.Address(t)}}})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Shutdown(t.Context())) }()
	nc, err := streams.Connect(streams.ConnectOptions{Server: s, Name: "test"})
	require.NoError(t, err)
	defer nc.Close()
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = streams.AwaitCluster(ctx, nc, js, streams.Plan{Replicas: 3}, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "the cluster is not there")
}

func TestWrongRoutesAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]ClusterOptions{
		"is not host:port":         {Name: "a", Listen: "nowhere"},
		"has no port":              {Name: "a", Listen: "127.0.0.1:x"},
		"is not nats://host:port":  {Name: "a", Listen: "127.0.0.1:1", Routes: []string{"nats://host"}},
		"cannot load the certific": {Name: "a", Listen: "127.0.0.1:1", TLSCert: "absent", TLSKey: "absent"},
	} {
		_, err := Start(Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Open: true, Profile: OS, Cluster: &c})
		require.ErrorContains(t, err, name)
	}
}

// awaits reports whether a member finds a cluster with a leader in that time.
func awaits(t *testing.T, s *Server, most time.Duration) error {
	t.Helper()
	nc, err := streams.Connect(streams.ConnectOptions{Server: s, Name: "test"})
	require.NoError(t, err)
	defer nc.Close()
	js, err := streams.JetStream(nc)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	for {
		ask, end := context.WithTimeout(ctx, 500*time.Millisecond)
		_, err = js.AccountInfo(ask)
		end()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

func TestMembersProveWhoTheyAre(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	members := threeMembers(t, func(o *Options) { o.Cluster.TLSCert, o.Cluster.TLSKey, o.Cluster.TLSCA = cert, key, cert })
	require.NoError(t, awaits(t, members[0], 30*time.Second))

	for name, change := range map[string]func(*ClusterOptions){
		"AWrongPassword": func(o *ClusterOptions) { o.Password = "wrong" },
		"AnotherAuthority": func(o *ClusterOptions) {
			o.TLSCert, o.TLSKey = certificate(t)
			o.TLSCA = o.TLSCert
		},
		"NoCertificate": func(o *ClusterOptions) { o.TLSCert, o.TLSKey, o.TLSCA = "", "", "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := ClusterOptions{Name: "test", Listen: testenv.Address(t), Routes: members[0].o.Cluster.Routes, User: "member", Password: "secret", TLSCert: cert, TLSKey: key, TLSCA: cert}
			change(&o)
			s, err := Start(Options{Dir: t.TempDir(), Listen: "127.0.0.1:0", Open: true, Profile: OS, Name: "stranger", Cluster: &o, Log: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			defer func() { require.NoError(t, s.Shutdown(context.Background())) }()
			require.Error(t, awaits(t, s, 3*time.Second))
		})
	}
}
