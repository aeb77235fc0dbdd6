package index

import (
	"slices"
	"strings"

	"github.com/tidwall/btree"
)

// row is one key of an index. Eighty bytes: a million of them have to fit beside the rest of the program.
type row struct {
	key                           string
	state                         *state
	labels                        *labelSet
	since, created, updated       int64 // nanoseconds; 0 is the zero time
	version, generation, revision uint64
}

// few is the size up to which a set is a sorted slice: most label values name a handful of rows, and an empty tree
// is larger than they are.
const few = 32

// set is an ordered set of rows by key. Its zero value is empty.
type set struct {
	list []*row
	tree *btree.BTreeG[*row] // takes over from list when the set has grown
}

func byKey(a, b *row) bool { return a.key < b.key }

func compareKey(r *row, key string) int { return strings.Compare(r.key, key) }

func (s *set) len() int {
	if s.tree != nil {
		return s.tree.Len()
	}
	return len(s.list)
}

func (s *set) insert(r *row) {
	if s.tree != nil {
		s.tree.Set(r)
		return
	}
	i, found := slices.BinarySearchFunc(s.list, r.key, compareKey)
	if found {
		s.list[i] = r
		return
	}
	s.list = slices.Insert(s.list, i, r)
	s.grow()
}

// load adds a row that comes after all others.
func (s *set) load(r *row) {
	if s.tree != nil {
		s.tree.Load(r)
		return
	}
	s.list = append(s.list, r)
	s.grow()
}

func (s *set) grow() {
	if len(s.list) <= few {
		return
	}
	s.tree = btree.NewBTreeGOptions(byKey, btree.Options{NoLocks: true})
	for _, r := range s.list {
		s.tree.Load(r)
	}
	s.list = nil
}

func (s *set) remove(r *row) {
	if s.tree != nil {
		if s.tree.Delete(r); s.tree.Len() == 0 {
			s.tree = nil
		}
		return
	}
	if i, found := slices.BinarySearchFunc(s.list, r.key, compareKey); found {
		s.list = slices.Delete(s.list, i, i+1)
	}
}

// cursor walks over a set in the order of keys. The set must not change meanwhile.
type cursor struct {
	of   *set
	row  *row // nil at the end
	rest []*row
	iter btree.IterG[*row]
	tree bool
}

// from is a cursor at the first key that is not less than key.
func (s *set) from(key string) cursor {
	if s.tree == nil {
		i, _ := slices.BinarySearchFunc(s.list, key, compareKey)
		c := cursor{of: s, rest: s.list[i:]}
		c.next()
		return c
	}
	c := cursor{of: s, iter: s.tree.Iter(), tree: true}
	if c.iter.Seek(&row{key: key}) {
		c.row = c.iter.Item()
	}
	return c
}

// seek goes on at the first key that is not less than key.
func (c *cursor) seek(key string) { *c = c.of.from(key) }

func (c *cursor) next() {
	c.row = nil
	if c.tree {
		if c.iter.Next() {
			c.row = c.iter.Item()
		}
	} else if len(c.rest) > 0 {
		c.row, c.rest = c.rest[0], c.rest[1:]
	}
}
