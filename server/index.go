package server

import (
	"context"
	"errors"
	"fmt"

	"github.com/bcc94042/instar/internal/panics"
	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
)

// startIndexes keeps what lists and discovery need of all entities in memory.
func (a *app) startIndexes(ctx context.Context) error {
	_, js, err := a.connect("index")
	if err != nil {
		return err
	}
	a.indexing = js
	for _, m := range a.machines.All() {
		a.startIndex(ctx, &a.steps, m)
	}
	return nil
}

// startIndex starts the index of a machine, which some steps stop.
func (a *app) startIndex(ctx context.Context, s *steps, m *machines.Machine) *index.Index {
	ix := index.New(a.indexing, a.deps.Names.Bucket(m.Plural), unpanicked(describer(m, a.provider(m.Name))), index.Options{
		Log: a.log, EndedFor: a.cfg.Index.EndedFor,
		Ended: func(state string) bool { s, ok := m.State(state); return ok && s.Terminal },
	})
	a.indexes.Set(m.Name, ix)
	s.goes(ctx, "index of "+m.Plural, ix.Run)
	return ix
}

// describer is how the index of a machine reads its values.
func describer(m *machines.Machine, p Provider) func(key string, value []byte) (index.Meta, error) {
	selected := m.Selected()
	decode := func(string, []byte) (any, error) { return nil, nil }
	if p.Decoder != nil {
		decode = p.Decoder()
	}
	return func(key string, value []byte) (index.Meta, error) {
		meta, value, err := readValue(m, value, selected)
		if err == nil {
			meta.Value, err = decode(key, value)
		}
		return meta, err
	}
}

// readValue refuses what the engine would park, as far as that can be told without decoding all of it. It returns the value in the schema of
// this program.
func readValue(m *machines.Machine, value []byte, selected []string) (index.Meta, []byte, error) {
	value, err := m.Current(value)
	if err != nil {
		return index.Meta{}, nil, err
	}
	meta, err := index.DescribeJSON(value, selected...)
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

// unpanicked takes a value whose reading panics for one that cannot be read: it is only the one.
func unpanicked(read func(string, []byte) (index.Meta, error)) func(string, []byte) (index.Meta, error) {
	return func(key string, value []byte) (meta index.Meta, err error) {
		defer func() {
			if p := recover(); p != nil {
				err = panics.Error("index", p)
			}
		}()
		return read(key, value)
	}
}
