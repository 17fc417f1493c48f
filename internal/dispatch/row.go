//go:build unix

package dispatch

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/lane"
	"github.com/handsel/handsel/internal/record"
)

// row is a waiting lane as the loop keeps it.
type row struct {
	attempt.Row
	hold    *lane.Hold // nil while descriptors are short, or somebody who handed it over has not let go
	group   *group
	offer   *offer         // nil = queued
	why     *record.Reason // why it may not be admitted now; nil = it may
	retry   time.Time      // not before, on this process's clock, after unclaimed starts
	leaving bool           // its end is being written
	waited  []waited       // for what, until counted
	counted time.Time      // when that was last brought up to date
	token   []byte         // hash under which the last dispatcher offered it; recovery's
}

// group is the rows that count against the same pools under the same caps:
// one of them stands in line for all (L13).
type group struct {
	key   string
	ready []*row // in order, without those that may not be admitted now
	stand *stand
}

// groupKey names what a row counts against, what it is recorded as, and whose quota
// it uses: what holds one account back holds no other row.
func groupKey(p *attempt.Placement) string {
	if len(p.Pools)+len(p.Caps) == 0 {
		return p.Engine + "/" + p.Account + "\x00" + p.Workload // no JSON begins like a name
	}
	b, _ := json.Marshal(struct {
		E, A, W string
		P       []string
		C       map[string]string
	}{p.Engine, p.Account, p.Workload, p.Pools, p.Caps}) // maps are written in key order
	return string(b)
}

func order(a, b *row) int {
	switch {
	case attempt.Before(&a.Row, &b.Row):
		return -1
	case attempt.Before(&b.Row, &a.Row):
		return 1
	}
	return cmp.Compare(a.ID, b.ID)
}

// add makes r a row of ours, with its lane held, and lets it be considered.
func (d *Dispatcher) add(r *row) {
	d.stirred = true
	d.share(&r.Row)
	d.rows[r.ID] = r
	d.lanes[r.Lane] = r.ID
	for _, a := range r.After {
		if d.awaited[a.Lane] == nil {
			d.awaited[a.Lane] = map[*row]int{}
		}
		d.awaited[a.Lane][r]++
	}
	r.group = d.groupOf(&r.Placement)
	r.counted = time.Now()
	d.judge(r)
}

// maxWords bounds how many different words are remembered.
const maxWords = 4096

// share makes a row use the words that other rows have: each came in a message
// of its own, and ten thousand rows mostly say the same (G9).
func (d *Dispatcher) share(r *attempt.Row) {
	if d.words == nil || len(d.words) >= maxWords {
		d.words = map[string]string{}
	}
	p := &r.Placement
	for _, word := range []*string{&r.BootID, &r.State, &r.Author, &r.Argv0, &r.Command, &p.Cwd, &p.Engine, &p.Account, &p.Workload, &p.Profile, &p.Confinement} {
		if shared, ok := d.words[*word]; ok {
			*word = shared
		} else {
			d.words[*word] = *word
		}
	}
}

func (d *Dispatcher) groupOf(p *attempt.Placement) *group {
	key := groupKey(p)
	g := d.groups[key]
	if g == nil {
		g = &group{key: key}
		d.groups[key] = g
	}
	return g
}

// remove makes the loop forget r. Its lane's descriptor is the caller's.
func (d *Dispatcher) remove(r *row) {
	d.stirred = true
	d.unready(r)
	delete(d.rows, r.ID)
	if d.lanes[r.Lane] == r.ID {
		delete(d.lanes, r.Lane)
	}
	for _, a := range r.After {
		delete(d.awaited[a.Lane], r)
		if len(d.awaited[a.Lane]) == 0 {
			delete(d.awaited, a.Lane)
		}
	}
	if g := r.group; d.groups[g.key] == g && d.idle(g) {
		delete(d.groups, g.key)
	}
	d.again = true
}

// ready puts r among those that may be admitted.
func (d *Dispatcher) ready(r *row) {
	if d.groups[r.group.key] != r.group {
		r.group = d.groupOf(&r.Placement)
	}
	at, there := slices.BinarySearchFunc(r.group.ready, r, order)
	if !there {
		r.group.ready = slices.Insert(r.group.ready, at, r)
	}
	d.again = true
}

func (d *Dispatcher) unready(r *row) {
	if at, there := slices.BinarySearchFunc(r.group.ready, r, order); there {
		r.group.ready = slices.Delete(r.group.ready, at, at+1)
		d.again = true
	}
}
