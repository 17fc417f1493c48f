package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/handsel/handsel/internal/slot"
)

// PoolNames lists the pools that have a directory, in order. None is no error.
func PoolNames(leases string) ([]string, error) {
	entries, err := os.ReadDir(leases)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pools: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Taken lists the slots of all pools that are not free, without any admission
// lock: one look, which proves nothing about the next.
func Taken(leases string) ([]Holder, error) {
	names, err := PoolNames(leases)
	if err != nil {
		return nil, err
	}
	var all []Holder
	for _, name := range names {
		p, err := slot.Open(leases, name, false)
		if err != nil {
			return all, err
		}
		c, err := p.Count()
		p.Close()
		if err != nil {
			return all, err
		}
		for _, s := range c.Slots {
			all = append(all, HolderOf(name, s))
		}
	}
	return all, nil
}

// Above lists the pools, in order, whose slots are held for commands that
// isAncestor knows as parents of the asker. A command that waits inside
// another may only name pools later in the order than these (S13).
func Above(leases string, isAncestor func(pid int) bool) ([]string, error) {
	taken, err := Taken(leases)
	var names []string
	for _, h := range taken {
		if h.Workload == GateWorkload && isAncestor(h.Pid) && !slices.Contains(names, h.Pool) {
			names = append(names, h.Pool)
		}
	}
	slices.Sort(names)
	return names, err
}
