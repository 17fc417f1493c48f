package stream

import "hash/maphash"

// recent remembers what was said lately, so that what is said again is no
// progress (E12): the same error with an empty line in between, or a trace of
// thirty lines every two seconds.
type recent struct {
	seed maphash.Seed
	sums [64]uint64
	next int
}

func newRecent() recent { return recent{seed: maphash.MakeSeed()} }

// line tells whether a line is none of the last different ones, and remembers it.
func (r *recent) line(b []byte) bool { return r.fresh(maphash.Bytes(r.seed, b)) }

// event tells the same of what an event says that failed.
func (r *recent) event(e Event) bool {
	said := struct {
		text          string
		fault         Fault
		status, count int
	}{e.Text, e.Fault, e.Status, 0}
	if e.Retry != nil {
		said.count = e.Retry.Attempt
	}
	return r.fresh(maphash.Comparable(r.seed, said))
}

func (r *recent) fresh(sum uint64) bool {
	for _, s := range r.sums {
		if s == sum {
			return false
		}
	}
	r.sums[r.next] = sum
	r.next = (r.next + 1) % len(r.sums)
	return true
}

// told is what the events of one line came to.
type told struct {
	faults int // of what failed or is refused
	news   int // of them, such as were not told lately
	others int
}

func (t *told) note(e Event, r *recent) {
	if e.Kind != Limit && e.Kind != Trouble {
		t.others++
		return
	}
	t.faults++
	if r.event(e) {
		t.news++
	}
}

// progress tells whether a line is progress; fresh says that it is none of the
// last ones.
func (t told) progress(fresh bool) bool {
	if t.faults > 0 && t.others == 0 {
		return t.news > 0
	}
	return fresh
}
