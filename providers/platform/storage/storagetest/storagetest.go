// Package storagetest is the contract of every provider of tenants' buckets, as one suite of tests.
package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// Suite is a provider with what the contract needs to be asked of it. Names of buckets are of the suite, so that all tests may share one store.
type Suite struct {
	Provider storage.Provider
	Put      func(ctx context.Context, b storage.Bucket, key string, data []byte) error
	Get      func(ctx context.Context, b storage.Bucket, key string) ([]byte, error)
	// NoQuota says why the store keeps no quotas; empty where it does.
	NoQuota string
	// Foreign makes a bucket that carries no mark.
	Foreign func(ctx context.Context, name string) (storage.Bucket, error)
}

// owner is whom the buckets of the tests belong to.
const owner = "default.acme.own"

const quota = 256 << 10

// Run asks for the whole contract, each point in a test of its own, in parallel.
func Run(t *testing.T, s Suite) {
	for name, test := range map[string]func(t *testing.T, b *bench){
		"EnsureIsIdempotent":             ensureIsIdempotent,
		"ConcurrentCallsAgree":           concurrentCallsAgree,
		"AnothersIsNeverTakenOver":       anothersIsNeverTakenOver,
		"OneWithoutAMarkIsLeftAlone":     oneWithoutAMarkIsLeftAlone,
		"ReadGivesEveryObject":           readGivesEveryObject,
		"TheQuotaHolds":                  theQuotaHolds,
		"TheQuotaIsBroughtInLine":        theQuotaIsBroughtInLine,
		"DeleteTakesEverything":          deleteTakesEverything,
		"DeletingNothingIsFine":          deletingNothingIsFine,
		"WhatCannotBeIsInvalid":          whatCannotBeIsInvalid,
		"AnEndedContextEndsTheCall":      anEndedContextEndsTheCall,
		"BucketsAreApartFromEachOther":   bucketsAreApart,
		"ItCanBeMadeAgainAfterItsDelete": itCanBeMadeAgain,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &bench{Suite: s, t: t, name: "tenant-" + strings.ToLower(name)})
		})
	}
}

// bench is one bucket under test.
type bench struct {
	Suite
	t    *testing.T
	name string
}

func (b *bench) spec() storage.Spec { return storage.Spec{Name: b.name, Owner: owner, Quota: quota} }

func (b *bench) ensure(s storage.Spec) storage.Bucket {
	b.t.Helper()
	made, err := b.Provider.Ensure(b.t.Context(), s)
	require.NoError(b.t, err)
	require.NotEmpty(b.t, made.ID)
	require.NotEmpty(b.t, made.Name)
	return made
}

func (b *bench) put(in storage.Bucket, key string) {
	b.t.Helper()
	require.NoError(b.t, b.Put(b.t.Context(), in, key, []byte("kept")))
}

func (b *bench) holds(in storage.Bucket, key string) {
	b.t.Helper()
	data, err := b.Get(b.t.Context(), in, key)
	require.NoError(b.t, err)
	require.Equal(b.t, "kept", string(data))
}

func ensureIsIdempotent(_ *testing.T, b *bench) {
	first := b.ensure(b.spec())
	b.put(first, "a/b.txt")
	require.Equal(b.t, first, b.ensure(b.spec()))
	b.holds(first, "a/b.txt")
}

func concurrentCallsAgree(t *testing.T, b *bench) {
	var calls sync.WaitGroup
	made, errs := make([]storage.Bucket, 8), make([]error, 8)
	for i := range made {
		calls.Go(func() { made[i], errs[i] = b.Provider.Ensure(t.Context(), b.spec()) })
	}
	calls.Wait()
	for i, err := range errs {
		require.NoError(t, err)
		require.Equal(t, made[0], made[i])
	}
}

func anothersIsNeverTakenOver(t *testing.T, b *bench) {
	made := b.ensure(b.spec())
	b.put(made, "a")
	other := b.spec()
	other.Owner = "default.rival.own"
	_, err := b.Provider.Ensure(t.Context(), other)
	require.True(t, providers.IsInvalid(err), "%v", err)
	b.leaves(other.Owner)
	b.holds(made, "a")
}

func oneWithoutAMarkIsLeftAlone(t *testing.T, b *bench) {
	made, err := b.Foreign(t.Context(), b.name)
	require.NoError(t, err)
	b.put(made, "a")
	_, err = b.Provider.Ensure(t.Context(), b.spec())
	require.True(t, providers.IsInvalid(err), "%v", err)
	b.leaves(owner)
	b.holds(made, "a")
}

// leaves asks for the removal of what is not the owner's.
func (b *bench) leaves(owner string) {
	b.t.Helper()
	err := b.Provider.Delete(b.t.Context(), b.name, owner)
	var another *storage.AnothersError
	require.ErrorAs(b.t, err, &another)
	require.True(b.t, providers.IsInvalid(err), "%v", err)
	require.ErrorContains(b.t, err, "remove it by hand")
}

func readGivesEveryObject(t *testing.T, b *bench) {
	made := b.ensure(b.spec())
	read := func() map[string]string {
		all := map[string]string{}
		require.NoError(t, b.Provider.Read(t.Context(), made, func(o storage.Object) error {
			from, err := o.Open()
			if err != nil {
				return err
			}
			data, err := io.ReadAll(from)
			require.Len(t, data, int(o.Bytes))
			all[o.Name] = string(data)
			return errors.Join(err, from.Close())
		}))
		return all
	}
	require.Empty(t, read())
	want := map[string]string{"a/b.txt": "kept", "c": "kept"}
	for name := range want {
		b.put(made, name)
	}
	require.Equal(t, want, read())
	broken := errors.New("the disk is full")
	require.ErrorIs(t, b.Provider.Read(t.Context(), made, func(storage.Object) error { return broken }), broken)
}

func theQuotaHolds(t *testing.T, b *bench) {
	b.quotas()
	made := b.ensure(b.spec())
	b.put(made, "small")
	require.Error(t, b.Put(t.Context(), made, "large", bytes.Repeat([]byte("x"), quota+1)))
	b.holds(made, "small")
}

func (b *bench) quotas() {
	b.t.Helper()
	require.Equal(b.t, b.NoQuota == "", b.Provider.Quotas())
	if b.NoQuota != "" {
		b.t.Skip(b.NoQuota)
	}
}

func theQuotaIsBroughtInLine(t *testing.T, b *bench) {
	b.quotas()
	made := b.ensure(b.spec())
	b.put(made, "small")
	large := bytes.Repeat([]byte("x"), quota+1)
	require.Error(t, b.Put(t.Context(), made, "large", large))
	more := b.spec()
	more.Quota = 4 * quota
	require.Equal(t, made, b.ensure(more))
	require.NoError(t, b.Put(t.Context(), made, "large", large))
	b.ensure(b.spec()) // less than what it holds
	b.holds(made, "small")
	data, err := b.Get(t.Context(), made, "large")
	require.NoError(t, err)
	require.Len(t, data, len(large))
	require.Error(t, b.Put(t.Context(), made, "further", []byte("x")))
}

func deleteTakesEverything(t *testing.T, b *bench) {
	made := b.ensure(b.spec())
	b.put(made, "a")
	for range 2 {
		require.NoError(t, b.Provider.Delete(t.Context(), b.name, owner))
		_, err := b.Get(t.Context(), made, "a")
		require.Error(t, err)
	}
}

func deletingNothingIsFine(t *testing.T, b *bench) {
	require.NoError(t, b.Provider.Delete(t.Context(), b.name, owner))
}

func whatCannotBeIsInvalid(t *testing.T, b *bench) {
	for _, s := range []storage.Spec{
		{Name: "no spaces or/slashes", Owner: owner}, {Owner: owner}, {Name: b.name}, {Name: b.name, Owner: owner, Quota: -1},
	} {
		_, err := b.Provider.Ensure(t.Context(), s)
		require.True(t, providers.IsInvalid(err), "%+v: %v", s, err)
	}
}

func anEndedContextEndsTheCall(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.Provider.Ensure(ctx, b.spec())
	require.Equal(t, providers.Timeout, providers.CodeOf(err), "%v", err)
	require.Equal(t, providers.Timeout, providers.CodeOf(b.Provider.Delete(ctx, b.name, owner)))
}

func bucketsAreApart(t *testing.T, b *bench) {
	var made [2]storage.Bucket
	for i := range made {
		s := b.spec()
		s.Name, s.Owner = fmt.Sprintf("%s-%d", b.name, i), fmt.Sprintf("%s%d", owner, i)
		made[i] = b.ensure(s)
	}
	b.put(made[0], "a")
	_, err := b.Get(t.Context(), made[1], "a")
	require.Error(t, err)
	require.NoError(t, b.Provider.Delete(t.Context(), b.name+"-1", owner+"1"))
	b.holds(made[0], "a")
}

func itCanBeMadeAgain(t *testing.T, b *bench) {
	made := b.ensure(b.spec())
	b.put(made, "a")
	require.NoError(t, b.Provider.Delete(t.Context(), b.name, owner))
	again := b.ensure(b.spec())
	_, err := b.Get(t.Context(), again, "a")
	require.Error(t, err, "nothing of the earlier one is there")
}
