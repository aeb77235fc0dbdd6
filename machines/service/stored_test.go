package service

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/machines"
)

// life is one service, fed by hand.
type life struct {
	t   *testing.T
	e   machines.Entity
	seq uint64
}

// takes feeds an input, after the value was stored and read again.
func (l *life) takes(command string, body any) {
	l.t.Helper()
	raw, err := json.Marshal(body)
	require.NoError(l.t, err)
	l.seq++
	next, out, err := Machine.Step(l.e, machines.Input{Command: command, Seq: l.seq, Time: time.Unix(int64(l.seq), 0).UTC(), Nonce: "n", Body: raw})
	require.NoError(l.t, err)
	require.Equal(l.t, machines.Applied, out.Result)
	l.e, err = Machine.Decode([]byte(l.stored(next)))
	require.NoError(l.t, err)
}

func (l *life) stored(e machines.Entity) string {
	l.t.Helper()
	raw, err := json.Marshal(e)
	require.NoError(l.t, err)
	return string(raw)
}

func (l *life) data() *Data { return l.e.Data.(*Data) }

// ready has the specification that is wanted observed as one that runs.
func (l *life) ready() {
	l.t.Helper()
	g := int64(l.e.Generation)
	l.takes(ReportObserved, machines.Report{Data: mustJSON(l.t, Observation{Snapshot: Snapshot{
		Exists: true, UID: "u", Generation: g, ObservedGeneration: g, SpecHash: l.data().SpecHash, Ready: machines.True, Serving: fmt.Sprint("r", g), Route: machines.True,
	}})})
	require.Equal(l.t, Ready, l.e.State)
}

func mustJSON(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

// The specification that runs is stored once while it is the one that is wanted, and is kept when another one is wanted: a rollback finds both.
func TestASpecificationIsStoredOnce(t *testing.T) {
	t.Parallel()
	spec := func(n int) map[string]any { return map[string]any{"spec": Spec{Image: fmt.Sprint("image-", n)}} }
	l := &life{t: t, e: Machine.New("default", "", "a")}
	l.takes(CommandCreate, spec(1))
	l.ready()
	require.Equal(t, 1, strings.Count(l.stored(l.e), "image-1"))
	require.Nil(t, l.data().Converged.Spec)
	require.Equal(t, l.data().SpecHash, l.data().Converged.Hash)
	l.takes(CommandUpdate, spec(2))
	require.Equal(t, "image-1", l.data().Converged.Spec.Image, "it may be gone back to")
	l.takes(CommandRollback, nil)
	require.Equal(t, "image-1", l.data().Spec.Image)
	l.ready()
	l.takes(CommandUpdate, spec(3))
	l.ready()
	require.Equal(t, "image-1", l.data().Previous.Spec.Image)
	require.Nil(t, l.data().Converged.Spec)
	l.takes(CommandUpdate, spec(4))
	l.takes(CommandRollback, nil)
	require.Equal(t, "image-3", l.data().Spec.Image, "the one that was ready last")
	l.ready()
	l.takes(CommandRollback, nil)
	require.Equal(t, "image-1", l.data().Spec.Image)
}

// A value of an earlier version has the specification twice; it is used as it is, and stored once when it is ready again.
func TestASpecificationThatWasStoredTwice(t *testing.T) {
	t.Parallel()
	l := &life{t: t, e: Machine.New("default", "", "a")}
	l.takes(CommandCreate, map[string]any{"spec": Spec{Image: "image-1"}})
	l.ready()
	old := *l.data()
	twice := *old.Converged
	twice.Spec = old.Spec
	old.Converged = &twice
	l.e.Data = &old
	l.takes(CommandUpdate, map[string]any{"spec": Spec{Image: "image-2"}})
	l.ready()
	require.Equal(t, "image-1", l.data().Previous.Spec.Image)
	require.Nil(t, l.data().Converged.Spec)
}

// A program that does not know that the specification that is READY may be stored once wants another one over it: that one is lost, and nothing else stands in for it.
func TestALostSpecificationIsNotGuessed(t *testing.T) {
	t.Parallel()
	image := func(n int) Spec { return Spec{Image: fmt.Sprint("image-", n)} }
	l := &life{t: t, e: Machine.New("default", "", "a")}
	l.takes(CommandCreate, map[string]any{"spec": image(0)})
	l.ready()
	l.takes(CommandUpdate, map[string]any{"spec": image(1)})
	l.ready()
	d := *l.data()
	require.Equal(t, "image-0", d.target().Spec.Image)
	other := image(2)
	d.Spec, d.SpecHash = &other, other.Hash() // as of that program
	require.Nil(t, d.target(), "image-0 is one too far")
	d.keepConverged()
	require.Nil(t, d.Converged.Spec, "image-2 never ran")
}
