package proc

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTreeHoldsNobodyElse: C039, C040. Tables made by hand, with the numbers
// that a mistake would take for "everybody": session and group 0 belong to
// kernel threads and to processes from outside a pid namespace.
func TestTreeHoldsNobodyElse(t *testing.T) {
	crowd := table{
		1:   {Pid: 1, Ticks: 1},
		2:   {Pid: 2, PPid: 0, Ticks: 1},
		50:  {Pid: 50, PPid: 1, Ticks: 5000},
		100: {Pid: 100, PPid: 1, Pgrp: 100, Session: 100, Ticks: 1000},
		101: {Pid: 101, PPid: 100, Pgrp: 100, Session: 100, Ticks: 1001},
		102: {Pid: 102, PPid: 1, Pgrp: 102, Session: 100, Ticks: 1002},
		103: {Pid: 103, PPid: 102, Pgrp: 102, Session: 100, Ticks: 900},
		104: {Pid: 104, PPid: 1, Pgrp: 100, Session: 100, Ticks: 1003, State: 'Z'},
		200: {Pid: 200, PPid: 1, Pgrp: 200, Session: 200, Ticks: 2000},
	}
	for _, tt := range []struct {
		name string
		tree tree
		want []int
	}{
		{"orphan", tree{root: crowd[100], born: 1000}, []int{100, 101, 102}},
		{"number of another process", tree{root: Stat{Pid: 100, Ticks: 999}, born: 999}, nil},
		{"no child and no run", tree{}, nil},
		{"reaped child", tree{child: &Child{Pid: 100, Session: Own, reaped: true}}, nil},
		{"unreaped child", tree{child: &Child{Pid: 100, Session: Own}, born: 1000}, []int{100, 101, 102}},
		{"child in our group", tree{child: &Child{Pid: 100}, born: 1000}, []int{100, 101}},
		{"known before", tree{born: 1000, known: map[int]uint64{101: 1001, 200: 1999}}, []int{101}},
		{"spared", tree{root: crowd[100], born: 1000, spare: map[int]bool{102: true}}, []int{100, 101}},
	} {
		if tt.tree.known == nil {
			tt.tree.known = map[int]uint64{}
		}
		var got []int
		living, _ := tt.tree.look(crowd)
		for _, st := range living {
			got = append(got, st.Pid)
		}
		if slices.Sort(got); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestSignalNeedsTheStart: the number alone signals nobody.
func TestSignalNeedsTheStart(t *testing.T) {
	c := shell(t, `echo ready; exec sleep 60`, nil)
	st, err := ReadStat(c.Pid)
	if err != nil {
		t.Fatal(err)
	}
	signals := countSignals(t)
	other := st
	other.Ticks++
	if err := signalExactly(other, unix.SIGKILL); !errors.Is(err, ErrGone) || len(*signals) > 0 {
		t.Errorf("another start: %v, sent %v", err, *signals)
	}
	if err := signalExactly(st, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	c.Reap()
	if err := signalExactly(st, unix.SIGKILL); err == nil {
		t.Error("a process that is gone was signalled")
	}
}
