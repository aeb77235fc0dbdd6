package core

import "container/heap"

// lifeHeap orders lives by their ends, and those of one end by sequence.
type lifeHeap []life

func (h lifeHeap) Len() int { return len(h) }
func (h lifeHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h lifeHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *lifeHeap) Push(x any)   { *h = append(*h, x.(life)) }
func (h *lifeHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

func pushLife(l []life, x life) []life {
	h := lifeHeap(l)
	heap.Push(&h, x)
	return h
}

func popLife(l []life) []life {
	h := lifeHeap(l)
	heap.Pop(&h)
	return h
}
