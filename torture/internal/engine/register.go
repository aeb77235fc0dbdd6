package engine

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
	"github.com/bcc94042/instar/torture/internal/load"
	"github.com/bcc94042/instar/torture/internal/part"
	"github.com/bcc94042/instar/torture/internal/rig"
)

// The label of an entity is a register: it is written under the condition that nobody wrote since it was read, or
// without a condition, and read through the leader.

// registerInput is what one operation asks for.
type registerInput struct {
	key   string
	kind  string // read, write, or cas
	value string
	at    uint64 // version that a cas expects
}

// registerOutput is what it was told. Of an unknown one nothing is known.
type registerOutput struct {
	unknown, refused bool
	value            string
	version          uint64
}

// register is the state of one entity: versions rise by one with each write, so they tell the order of writes. They
// count from where the entity stood at the beginning.
type register struct {
	version uint64
	value   string
}

// registerModel is a register with compare-and-set. An operation whose outcome is unknown may have happened or not, so
// it has two states that follow.
var registerModel = (&porcupine.NondeterministicModel{
	Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, op := range all {
			key := op.Input.(registerInput).key
			by[key] = append(by[key], op)
		}
		var parts [][]porcupine.Operation
		for _, ops := range by {
			parts = append(parts, ops)
		}
		return parts
	},
	Init: func() []any { return []any{register{}} },
	Step: func(state, input, output any) []any {
		return state.(register).step(input.(registerInput), output.(registerOutput))
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v gives %+v", input, output)
	},
}).ToModel()

func (r register) step(in registerInput, out registerOutput) []any {
	if in.kind == "read" {
		if out.version == r.version && out.value == r.value {
			return []any{r}
		}
		return nil
	}
	fits := in.kind == "write" || in.at == r.version
	written := register{r.version + 1, in.value}
	switch {
	case out.unknown && fits:
		return []any{written, r}
	case out.unknown:
		return []any{r}
	case out.refused && fits, !out.refused && (!fits || out.version != written.version):
		return nil
	case out.refused:
		return []any{r}
	}
	return []any{written}
}

// Linearizable reads and writes registers under kills and asks porcupine whether some order explains all answers.
func Linearizable(t *part.T) error {
	i, err := t.Serving("data", "", "--durability", "interval", "--log-level", "warn")
	if err != nil {
		return err
	}
	journal := &load.Journal{}
	keys := t.Amount(6, 30)
	bases, err := registers(t, i, journal, keys)
	if err != nil {
		return err
	}
	log := operations{bases: bases}
	var clients sync.WaitGroup
	for n := range 8 {
		clients.Go(func() { log.client(t, i, journal, n, keys, t.Amount(500, 2600)) })
	}
	kills := make(chan error, 1)
	stop := make(chan struct{})
	go func() { kills <- killUntil(t, i, journal, stop) }()
	clients.Wait()
	close(stop)
	if err := <-kills; err != nil {
		return err
	}
	explain(t, log.ops)
	r, err := t.Reader(i.NATSURL())
	if err != nil {
		return err
	}
	return t.SettleAndJudge(r, journal, 30*time.Second, nil)
}

// registers creates the entities and gives the version that each stands at. They have failed and were looked at, so that
// nothing but writes makes versions of them.
func registers(t *part.T, i *rig.Instar, journal *load.Journal, keys int) ([]uint64, error) {
	c := &load.Client{Name: "maker", Bases: []string{"http://" + i.HTTP}, Journal: journal, Rand: rand.New(rand.NewPCG(t.Seed, 2))}
	bases := make([]uint64, keys)
	r, err := t.Reader(i.NATSURL())
	if err != nil {
		return nil, err
	}
	for _, step := range []struct {
		command string
		body    any
	}{{"create", map[string]any{"spec": map[string]any{"image": "nothing"}}}, {"refresh", nil}} {
		for n := range bases {
			c.Do(t.Ctx, fmt.Sprintf("r%d", n), step.command, step.body, 0)
		}
		h, err := r.Settle(t.Ctx, 20*time.Second)
		if err != nil {
			return nil, err
		}
		for n := range bases {
			bases[n] = h.Values[load.Key(fmt.Sprintf("r%d", n))].Version
		}
	}
	return bases, nil
}

func killUntil(t *part.T, i *rig.Instar, journal *load.Journal, stop <-chan struct{}) error {
	kills := 0
	var recoveries part.Times
	for {
		select {
		case <-stop:
			t.Say("%d kills; from start to the first acknowledged command: %s", kills, recoveries)
			return nil
		case <-time.After(t.Between(600*time.Millisecond, 1600*time.Millisecond)):
		}
		took, err := killAndWait(t, i, journal)
		if err != nil {
			return err
		}
		kills++
		recoveries = append(recoveries, took)
	}
}

// operations is what porcupine judges.
type operations struct {
	bases []uint64 // versions at the beginning
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// client reads and writes; what it last read of a register is what it expects of it.
func (o *operations) client(t *part.T, i *rig.Instar, journal *load.Journal, n, keys, most int) {
	c := &load.Client{Name: fmt.Sprintf("w%d", n), Bases: []string{"http://" + i.HTTP}, Journal: journal, Rand: rand.New(rand.NewPCG(t.Seed, uint64(100+n)))}
	seen := make([]load.View, keys)
	for step := 0; step < most && wait.For(t.Ctx, time.Duration(c.Rand.IntN(30))*time.Millisecond); step++ {
		k := c.Rand.IntN(keys)
		value := fmt.Sprintf("w%d-%d", n, step)
		switch r := c.Rand.IntN(10); {
		case r == 0:
			o.one(t, c, n, k, "write", value, &seen[k])
		case r < 5 && seen[k].Revision != 0:
			if r != 1 { // else what it expects is old
				o.one(t, c, n, k, "read", "", &seen[k])
			}
			o.one(t, c, n, k, "cas", value, &seen[k])
		default:
			o.one(t, c, n, k, "read", "", &seen[k])
		}
	}
}

// one is one operation. A read that failed says nothing.
func (o *operations) one(t *part.T, c *load.Client, n, k int, kind, value string, seen *load.View) {
	in := registerInput{key: fmt.Sprintf("r%d", k), kind: kind, value: value}
	if kind == "cas" {
		in.at = seen.Version - o.bases[k]
	}
	called := time.Now()
	out, ok := perform(t, c, in, seen)
	if !ok {
		return
	}
	if out.version != 0 {
		out.version -= o.bases[k]
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ops = append(o.ops, porcupine.Operation{ClientId: n, Input: in, Call: called.UnixNano(), Output: out, Return: time.Now().UnixNano()})
}

func perform(t *part.T, c *load.Client, in registerInput, seen *load.View) (registerOutput, bool) {
	if in.kind == "read" {
		v, err := c.Get(t.Ctx, in.key)
		if err == nil {
			*seen = v
			return registerOutput{value: v.Labels["v"], version: v.Version}, true
		}
		return registerOutput{}, false
	}
	expect := uint64(0)
	if in.kind == "cas" {
		expect = seen.Revision
	}
	cmd := c.Do(t.Ctx, in.key, "label", map[string]any{"labels": map[string]string{"v": in.value}}, expect)
	switch cmd.Outcome {
	case check.Applied:
		return registerOutput{version: cmd.Version}, true
	case check.Refused:
		return registerOutput{refused: true}, true
	}
	return registerOutput{unknown: true}, true
}
