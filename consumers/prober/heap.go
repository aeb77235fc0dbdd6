package prober

// heap orders instances by when they are due.
type heap []*tracked

func (h heap) Len() int           { return len(h) }
func (h heap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h heap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push and Pop are called by container/heap only.
func (h *heap) Push(x any) {
	t := x.(*tracked)
	t.place = len(*h)
	*h = append(*h, t)
}

// Pop takes the last one.
func (h *heap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.place = -1
	return t
}
