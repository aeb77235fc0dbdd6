package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/bcc94042/instar/kv"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/instance"
	"github.com/bcc94042/instar/machines/preservation"
)

// startIndexes keeps what lists and discovery need of all entities in memory.
func (a *app) startIndexes(ctx context.Context) error {
	_, js, err := a.connect("index")
	if err != nil {
		return err
	}
	for _, m := range a.machines {
		ix := kv.NewIndex(js, a.deps.Names.Bucket(m.Plural), unpanicked(describer(m)), kv.Options{
			Log: a.log, EndedFor: a.cfg.Index.EndedFor,
			Ended: func(state string) bool { s, ok := m.State(state); return ok && s.Terminal },
		})
		a.indexes[m.Name] = ix
		a.goes(ctx, "index of "+m.Plural, ix.Run)
	}
	return nil
}

// describer is how the index of a machine reads its values: those of instances are kept decoded, because discovery and
// probes need all of them all the time, and so are those of preservations.
func describer(m *machines.Machine) func(key string, value []byte) (kv.Meta, error) {
	switch m.Name {
	case preservation.Machine.Name:
		return func(_ string, value []byte) (kv.Meta, error) {
			meta, value, err := describe(m, value)
			if err != nil {
				return meta, err
			}
			e, err := preservation.Machine.Decode(value)
			meta.Value = e.Data
			return meta, err
		}
	case instance.Machine.Name:
	default:
		return func(_ string, value []byte) (kv.Meta, error) {
			meta, _, err := describe(m, value)
			return meta, err
		}
	}
	var reader instance.Reader // an index describes one value after another
	return func(key string, value []byte) (kv.Meta, error) {
		meta, value, err := describe(m, value)
		if err != nil {
			return meta, err
		}
		r, err := reader.Decode(key, value)
		if err != nil {
			return meta, err
		}
		meta.Value = r
		return meta, nil
	}
}

// describe refuses what the engine would park, as far as that can be told without decoding all of it. It returns the value in the schema of
// this program.
func describe(m *machines.Machine, value []byte) (kv.Meta, []byte, error) {
	value, err := m.Current(value)
	if err != nil {
		return kv.Meta{}, nil, err
	}
	meta, err := kv.DescribeJSON(value)
	switch {
	case err != nil:
		return meta, nil, err
	case meta.Schema > m.Schema():
		return meta, nil, fmt.Errorf("schema %d was written by a newer program", meta.Schema)
	case meta.Schema < 1 || meta.State == "":
		return meta, nil, errors.New("the value was not written by this program")
	}
	return meta, value, nil
}
