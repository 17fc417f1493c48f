package journal

import (
	"cmp"
	"container/heap"
	"iter"
)

// lag is how many places an event may stand after later ones and still be told
// in the order of its time: lines of several processes come as these get to
// write. Where the clock was set back by more, the order of writing counts.
const lag = 4096

// Merge tells the events of several sources in the order of their times, those
// of one moment in the order of the sources and of each source's own. The order
// depends on nothing else, so it is the same each time, and memory is bounded.
func Merge(sources ...iter.Seq[Event]) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		var heads []head
		for i, s := range sources {
			next, stop := iter.Pull(ordered(s))
			defer stop()
			if e, ok := next(); ok {
				heads = append(heads, head{e, i, next})
			}
		}
		for len(heads) > 0 {
			first := 0
			for i := range heads {
				if c := heads[i].e.At.Compare(heads[first].e.At); c < 0 || c == 0 && heads[i].source < heads[first].source {
					first = i
				}
			}
			h := &heads[first]
			if !yield(h.e) {
				return
			}
			if e, ok := h.next(); ok {
				h.e = e
			} else {
				heads = append(heads[:first], heads[first+1:]...)
			}
		}
	}
}

// head is the next event of a source.
type head struct {
	e      Event
	source int
	next   func() (Event, bool)
}

// ordered puts the events of one source in the order of their times.
func ordered(s iter.Seq[Event]) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		var w window
		n := 0
		for e := range s {
			heap.Push(&w, &placed{e, n})
			if n++; len(w) > lag && !yield(heap.Pop(&w).(*placed).e) {
				return
			}
		}
		for len(w) > 0 {
			if !yield(heap.Pop(&w).(*placed).e) {
				return
			}
		}
	}
}

// placed is an event with its place in its source.
type placed struct {
	e Event
	n int
}

// window is a heap of the events that may still change places.
type window []*placed

func (w window) Len() int      { return len(w) }
func (w window) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w window) Less(i, j int) bool {
	return cmp.Or(w[i].e.At.Compare(w[j].e.At), cmp.Compare(w[i].n, w[j].n)) < 0
}

// Push and Pop are container/heap's.
func (w *window) Push(x any) { *w = append(*w, x.(*placed)) }

// Pop takes the last off.
func (w *window) Pop() any {
	old := *w
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*w = old[:len(old)-1]
	return last
}
