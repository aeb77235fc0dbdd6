package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/bcc94042/instar/torture/internal/part"
)

// explain asks porcupine for its verdict, which has to be Ok: Unknown is no answer.
func explain(t *part.T, ops []porcupine.Operation) {
	kinds := map[string]int{}
	unknown := map[string]int{}
	size := map[string]int{}
	for i := range ops {
		in, out := ops[i].Input.(registerInput), ops[i].Output.(registerOutput)
		size[in.key]++
		switch {
		case out.unknown:
			kinds["unknown"]++
			unknown[in.key]++
		case out.refused:
			kinds["refused"]++
		default:
			kinds[in.kind]++
		}
		if size[in.key] > 1000 || unknown[in.key] > 10 {
			t.Say("the register %s has %d operations, %d of them unknown: too much to judge", in.key, size[in.key], unknown[in.key])
		}
	}
	began := time.Now()
	verdict, info := porcupine.CheckOperationsVerbose(registerModel, ops, time.Minute)
	t.Say("porcupine: %s in %s of %d operations on %d registers: %d reads, %d writes, %d guarded writes, %d refused, %d unknown",
		verdict, part.Since(began), len(ops), len(size), kinds["read"], kinds["write"], kinds["cas"], kinds["refused"], kinds["unknown"])
	for _, kind := range []string{"read", "cas"} {
		if kinds[kind] == 0 { // whatever is answered then is explained by some order
			t.Violations++
			t.Say("VIOLATION linearizable: no %s has succeeded, so nothing was tested", kind)
		}
	}
	if verdict != porcupine.Ok {
		t.Violations++
		t.Say("VIOLATION linearizable: no order of the operations explains their answers, or none was found in time")
		unexplained(t, ops, info)
	}
}

// unexplained prints, of each register that has no explanation, how far the longest one comes and what it cannot take in.
func unexplained(t *part.T, ops []porcupine.Operation, info porcupine.LinearizationInfo) {
	for _, part := range info.PartialLinearizationsOperations() {
		var longest []porcupine.Operation
		for _, one := range part {
			if len(one) > len(longest) {
				longest = one
			}
		}
		if len(longest) == 0 {
			continue
		}
		key := longest[0].Input.(registerInput).key
		taken := map[[2]int64]bool{}
		for _, op := range longest {
			taken[[2]int64{int64(op.ClientId), op.Call}] = true
		}
		var rest []porcupine.Operation
		for _, op := range ops {
			if op.Input.(registerInput).key == key && !taken[[2]int64{int64(op.ClientId), op.Call}] {
				rest = append(rest, op)
			}
		}
		if len(rest) == 0 {
			continue
		}
		slices.SortFunc(rest, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
		t.Say("%s: %d operations are explained, %d are not; the last explained and the first others:", key, len(longest), len(rest))
		for _, op := range append(longest[max(0, len(longest)-8):], rest[:min(8, len(rest))]...) {
			t.Say("  client %d, %s to %s: %+v gives %+v", op.ClientId, nano(op.Call), nano(op.Return), op.Input, op.Output)
		}
	}
}

func nano(n int64) string { return time.Unix(0, n).UTC().Format("15:04:05.000000") }
