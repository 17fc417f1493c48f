package api

import (
	"slices"
	"strings"

	"github.com/handsel/handsel/internal/attempt"
)

// PoolsOf lists what a row counts against, by name (S1): all, heavy unless it
// is light, its engine's, and those it names.
func PoolsOf(p *attempt.Placement) []string {
	pools := append([]string{"all"}, p.Pools...)
	if p.Workload != "light" {
		pools = append(pools, "heavy")
	}
	if p.Engine != "" {
		pools = append(pools, p.Engine)
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}

// Order puts rows into the order in which they would start (C5), and says of
// each where it stands. Reasons are the caller's to fill in.
func Order(rows []*attempt.Row) []Waiting {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b *attempt.Row) int {
		switch {
		case attempt.Before(a, b):
			return -1
		case attempt.Before(b, a):
			return 1
		}
		return 0
	})
	ahead := crowd{sets: map[string]*kin{}, authors: map[string]int{}}
	out := make([]Waiting, len(rows))
	for i, r := range rows {
		w := Waiting{Row: *r, Pools: PoolsOf(&r.Placement)}
		ahead.place(&w)
		out[i] = w
	}
	return out
}

// crowd is the rows that were placed so far.
type crowd struct {
	sets    map[string]*kin // by the pools they count against
	authors map[string]int
	most    []Author // the MaxAuthors with the most rows, most first
}

// kin is the rows that count against the same pools.
type kin struct {
	pools    []string
	rows     int
	priority map[int]int // rows by priority
}

// place says where w stands behind the crowd, and adds it.
func (c *crowd) place(w *Waiting) {
	w.Place = 1
	for _, s := range c.sets {
		if !s.shares(w.Pools) {
			continue
		}
		w.Place += s.rows
		for priority, n := range s.priority {
			if priority > w.Priority {
				w.Behind += n
			}
		}
	}
	if len(c.authors) > 1 || len(c.authors) == 1 && c.authors[w.Author] == 0 {
		w.AheadByAuthor = slices.Clone(c.most) // only where others are ahead
	}
	key := strings.Join(w.Pools, ",")
	if c.sets[key] == nil {
		c.sets[key] = &kin{pools: w.Pools, priority: map[int]int{}}
	}
	c.sets[key].rows++
	c.sets[key].priority[w.Priority]++
	c.count(w.Author)
}

func (s *kin) shares(pools []string) bool {
	return slices.ContainsFunc(s.pools, func(p string) bool { return slices.Contains(pools, p) })
}

// count adds a row of an author, and keeps the list of those with the most.
func (c *crowd) count(author string) {
	c.authors[author]++
	n := c.authors[author]
	at := slices.IndexFunc(c.most, func(a Author) bool { return a.Author == author })
	if at < 0 {
		if len(c.most) == MaxAuthors && c.most[MaxAuthors-1].Rows >= n {
			return
		}
		c.most = append(c.most[:min(len(c.most), MaxAuthors-1)], Author{author, n})
		at = len(c.most) - 1
	}
	c.most[at].Rows = n
	for ; at > 0 && c.most[at-1].Rows < n; at-- {
		c.most[at-1], c.most[at] = c.most[at], c.most[at-1]
	}
}
