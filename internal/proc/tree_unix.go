//go:build unix

package proc

import (
	"os"

	"golang.org/x/sys/unix"
)

// table is the process table at one look. It is not taken in one step: a
// process can be born behind the reader's back while its parent dies.
type table map[int]Stat

func readTable() (table, error) {
	list, err := pids()
	if err != nil {
		return nil, err
	}
	t := make(table, len(list))
	for _, pid := range list {
		if st, err := ReadStat(pid); err == nil {
			t[pid] = st
		}
	}
	return t, nil
}

func (t table) below() map[int][]int {
	kids := make(map[int][]int, len(t))
	for pid, st := range t {
		kids[st.PPid] = append(kids[st.PPid], pid)
	}
	return kids
}

// tree says which processes belong to one run. Exactly one of child and root
// is set: a child of ours, or an orphan of a supervisor that is gone.
type tree struct {
	child        *Child
	root         Stat
	run          string
	adopting     bool // orphans of the tree are our children (subreaper)
	leaveDaemons bool
	passOver     func(pid int, id ID) bool

	born  uint64         // start of the tree's first process; 0 = not known
	known map[int]uint64 // pid to ticks of everything found so far
	spare map[int]bool   // never ended: we, and for an orphan our ancestors
}

// leader is the pid of the tree's first process; 0 once that number may mean
// somebody else.
func (tr *tree) leader() int {
	switch {
	case tr.child == nil:
		return tr.root.Pid
	case tr.child.wasReaped():
		return 0
	default:
		return tr.child.Pid
	}
}

// look finds what of the tree is alive. kept are those that may stay: daemons
// when they are left, and recorded holders with everything below them.
func (tr *tree) look(t table) (living, kept []Stat) {
	kids := t.below()
	seen := map[int]bool{}
	var visit func(pid int, passed bool)
	visit = func(pid int, passed bool) {
		st, there := t[pid]
		if !there || seen[pid] || tr.spare[pid] || pid <= 1 {
			return
		}
		// Nothing below a process is older than it. Whatever else went wrong,
		// what ran before the run is not touched.
		if st.Ticks < tr.born {
			return
		}
		seen[pid] = true
		passed = passed || pid != tr.leader() && !st.Zombie() && tr.passOver != nil && tr.passOver(pid, st.ID())
		switch {
		case st.Zombie():
		case passed, tr.isLeftDaemon(st):
			kept = append(kept, st)
		default:
			living = append(living, st)
			tr.known[pid] = st.Ticks
		}
		for _, kid := range kids[pid] {
			visit(kid, passed)
		}
	}
	// From the top down: a holder that is passed over takes those below it
	// along, however else they might be found.
	roots := tr.roots(t, kids)
	for _, pid := range topFirst(t, roots) {
		visit(pid, false)
	}
	return living, kept
}

// topFirst orders roots so that an ancestor comes before what is below it.
func topFirst(t table, roots map[int]bool) []int {
	var ordered []int
	placed := map[int]bool{}
	var place func(pid, depth int)
	place = func(pid, depth int) {
		if placed[pid] || depth > maxAncestors {
			return
		}
		for up, n := t[pid].PPid, 0; up > 1 && n < maxAncestors; up, n = t[up].PPid, n+1 {
			if roots[up] && up != pid {
				place(up, depth+1)
				break
			}
		}
		if !placed[pid] {
			placed[pid] = true
			ordered = append(ordered, pid)
		}
	}
	for pid := range roots {
		place(pid, 0)
	}
	return ordered
}

// roots are the processes from which the walk goes down.
func (tr *tree) roots(t table, kids map[int][]int) map[int]bool {
	roots := map[int]bool{}
	if st, ok := t[tr.leader()]; ok && (tr.child != nil || st.Ticks == tr.root.Ticks) {
		roots[st.Pid] = true
	}
	for pid, ticks := range tr.known {
		if st, ok := t[pid]; ok && st.Ticks == ticks {
			roots[pid] = true
		}
	}
	if tr.adopting {
		for _, pid := range kids[os.Getpid()] {
			if tr.adopted(pid) {
				roots[pid] = true
			}
		}
		return roots
	}
	for pid, st := range t {
		if tr.inSession(t, st) || tr.marked(pid, st) {
			roots[pid] = true
		}
	}
	return roots
}

// adopted tells whether a child of this process is an orphan of this tree.
// With one run in the process every orphan is. With several, the marker in
// its environment decides; one without a marker is left to the last run.
func (tr *tree) adopted(pid int) bool {
	live := liveChildren()
	if _, started := live[pid]; started {
		return pid == tr.leader()
	}
	others := 0
	for _, c := range live {
		if c != tr.child {
			others++
		}
	}
	if others == 0 {
		return true
	}
	run, found, err := Env(pid, runMarker)
	return err == nil && found && run == tr.run
}

// runMarker is the variable that names a run to its descendants (C9).
const runMarker = "HANDSEL_RUN"

func (tr *tree) marked(pid int, st Stat) bool {
	if tr.run == "" || st.Zombie() || tr.spare[pid] {
		return false
	}
	run, found, err := Env(pid, runMarker)
	return err == nil && found && run == tr.run
}

// inSession tells whether st is in the session or group that the tree's
// leader made. The number proves it only while the leader, or a member seen
// before, still has it: the kernel gives no number away that is in use as a
// session or group.
func (tr *tree) inSession(t table, st Stat) bool {
	lead := tr.leader()
	if lead <= 1 || tr.child != nil && !tr.child.hasGroup() || st.Session != lead && st.Pgrp != lead {
		return false
	}
	if tr.child != nil {
		return true // unreaped while we look
	}
	if now, ok := t[lead]; ok {
		return now.Ticks == tr.root.Ticks
	}
	for pid, ticks := range tr.known {
		if m, ok := t[pid]; ok && m.Ticks == ticks && (m.Session == lead || m.Pgrp == lead) {
			return true
		}
	}
	return false
}

// isLeftDaemon tells whether st made its own session and daemons are left.
func (tr *tree) isLeftDaemon(st Stat) bool {
	if !tr.leaveDaemons || tr.child == nil || st.Pid == tr.leader() {
		return false
	}
	if tr.child.Session == Own {
		return st.Session != tr.child.Pid
	}
	ours, _ := unix.Getsid(0)
	return st.Session != ours
}

// collectOrphans reaps what came to us and has ended, so that the look that
// follows sees only the living.
func (tr *tree) collectOrphans() {
	if tr.adopting {
		ReapAdopted()
	}
}
