package streams

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	labelPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	tokenPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}$`)
	eventPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*$`)
	keyPattern   = regexp.MustCompile(`^[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63}){1,2}$`)
)

func seed(f *testing.F, subjects ...string) {
	for _, s := range append(subjects, strange...) {
		f.Add(s)
	}
	for _, s := range subjects {
		for _, bad := range strange {
			f.Add(s + bad)
			f.Add(strings.Replace(s, "default", bad, 1))
			f.Add(strings.Replace(s, "service", bad, 1))
		}
	}
}

// What is parsed is the one address that the subject is built of: two subjects never have the same address.
func checkAddress(t *testing.T, a Address, last *regexp.Regexp) {
	require.Regexp(t, tokenPattern, a.Machine)
	require.Regexp(t, keyPattern, a.Key)
	require.Regexp(t, last, a.Last)
	_, _, _, err := SplitKey(a.Key)
	require.NoError(t, err)
}

func FuzzParseStored(f *testing.F) {
	seed(f, Names{}.Stored("service", "default.web", "create"), Names{}.Stored("instance", "default.web.i-1", "failed-work"), "instar.in.0.service.default.web.create")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Names{}.ParseStored(s)
		if err != nil {
			require.ErrorIs(t, err, ErrSubject)
			require.Zero(t, a)
			return
		}
		checkAddress(t, a, tokenPattern)
		require.Equal(t, s, Names{}.Stored(a.Machine, a.Key, a.Last))
	})
}

func FuzzParseEvent(f *testing.F) {
	seed(f, "instar.evt.service.default.web.service.ready", "instar.evt.instance.default.web.i-1.ready")
	f.Fuzz(func(t *testing.T, s string) {
		for _, parented := range []bool{false, true} {
			a, err := Names{}.ParseEvent(s, parented)
			if err != nil {
				require.ErrorIs(t, err, ErrSubject)
				require.Zero(t, a)
				continue
			}
			checkAddress(t, a, eventPattern)
			require.Equal(t, parented, strings.Count(a.Key, ".") == 2)
			require.Equal(t, s, Names{}.Event(a.Machine, a.Key, a.Last))
		}
	})
}

func FuzzParseEffect(f *testing.F) {
	seed(f, "instar.fx.service.apply.default.web", "instar.fx.instance.start.default.web.i-1", "instar.fx.task.run=gpu.default.shop.a", "instar.fx.task.run=.default.shop.a")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Names{}.ParseEffect(s)
		if err != nil {
			require.ErrorIs(t, err, ErrSubject)
			require.Zero(t, a)
			return
		}
		require.Equal(t, s, Names{}.Effect(a.Machine, a.Last, a.Key))
		a.Last, _, _ = strings.Cut(a.Last, "=")
		checkAddress(t, a, tokenPattern)
	})
}

func FuzzParseSignals(f *testing.F) {
	n := Names{}
	seed(f, n.Heartbeat("default", "web", "i-1"), n.Observation("default.web.i-1"), n.Acknowledge("default", "web"), n.Heartbeats(), n.Observations(), n.Acknowledgements())
	f.Fuzz(func(t *testing.T, s string) {
		heartbeat := func(key string) string {
			namespace, service, id, _ := SplitKey(key)
			return n.Heartbeat(namespace, service, id)
		}
		acknowledge := func(key string) string {
			namespace, _, service, _ := SplitKey(key)
			return n.Acknowledge(namespace, service)
		}
		for _, kind := range []struct {
			parse func(string) (string, error)
			build func(string) string
			dots  int
		}{{n.ParseHeartbeat, heartbeat, 2}, {n.ParseObservation, n.Observation, 2}, {n.ParseAcknowledge, acknowledge, 1}} {
			key, err := kind.parse(s)
			if err != nil {
				require.ErrorIs(t, err, ErrSubject)
				require.Empty(t, key)
				continue
			}
			_, _, _, err = SplitKey(key)
			require.NoError(t, err)
			require.Equal(t, kind.dots, strings.Count(key, "."))
			require.Equal(t, s, kind.build(key))
		}
	})
}

func FuzzSplitKey(f *testing.F) {
	seed(f, "default.web", "default.web.i-1", "service.default")
	f.Fuzz(func(t *testing.T, s string) {
		namespace, parent, id, err := SplitKey(s)
		if err != nil {
			require.ErrorIs(t, err, ErrSubject)
			require.Empty(t, namespace+parent+id)
			return
		}
		key := namespace + "." + id
		if parent != "" {
			key = namespace + "." + parent + "." + id
		}
		require.Equal(t, s, key)
	})
}

func FuzzCheckLabel(f *testing.F) {
	seed(f, "web", long, "a-", "-a")
	f.Fuzz(func(t *testing.T, s string) {
		require.Equal(t, labelPattern.MatchString(s), CheckLabel(s) == nil, "%q", s)
	})
}
