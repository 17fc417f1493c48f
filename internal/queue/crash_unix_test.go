//go:build failpoint && unix

package queue

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/record"
)

func init() { children["crash"] = crashChild }

// crashChild walks attempts through every change there is, eight at a time, and
// tells each change that was answered on a line of its own, until it is killed.
func crashChild() {
	db, err := Open(ctx, os.Getenv("CRASH_DB"))
	check(err)
	var mu sync.Mutex
	tell := func(id, what string) {
		mu.Lock()
		defer mu.Unlock()
		_, err := fmt.Println(id, what)
		check(err)
	}
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for {
				crashWalk(db, fmt.Sprint("lane ", n), tell)
			}
		})
	}
	all.Wait()
}

func crashWalk(db *DB, lane string, tell func(id, what string)) {
	r := row(lane)
	check(db.Accept(ctx, r))
	tell(r.ID, Accepted)
	offer := func() {
		_, err := db.Offer(ctx, r.ID, token, time.Now())
		check(err)
		tell(r.ID, Offered)
	}
	grant := func() {
		_, err := db.Grant(ctx, r.ID, token, Driver{Pid: os.Getpid()}, 0)
		check(err)
		tell(r.ID, Granted)
	}
	offer()
	check(db.Withdraw(ctx, r.ID, token, "", true))
	tell(r.ID, Withdrawn)
	offer()
	grant()
	check(db.Requeue(ctx, r.ID, ""))
	tell(r.ID, Requeued)
	offer()
	grant()
	check(db.Begun(ctx, r.ID))
	tell(r.ID, Begun)
	check(db.End(ctx, r.ID, End{Outcome: record.Lost, At: time.Now()}))
	tell(r.ID, Ended)
	_, err := db.Prune(ctx, time.Now(), 40)
	check(err)
}

// check is for children: they have nobody to tell.
func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// failpoints are the names of this package's failpoints, from its source.
func failpoints(t *testing.T) (names []string) {
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		must(t, err)
		for _, m := range regexp.MustCompile(`failpoint\.Hit\("([^"]+)"\)`).FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// walk is what an attempt's events may follow each other.
var walk = map[string][]string{
	"":        {Accepted},
	Accepted:  {Offered},
	Offered:   {Withdrawn, Granted},
	Withdrawn: {Offered},
	Granted:   {Requeued, Begun},
	Requeued:  {Offered},
	Begun:     {Ended},
}

// L25: killed at any step, alone or in the middle of a batch, the database has
// everything that was answered, and of what was not, all or nothing.
func TestKilledAtAnyStepNothingIsHalfDone(t *testing.T) {
	names := failpoints(t)
	if len(names) < 15 {
		t.Fatalf("failpoints %q", names)
	}
	for _, name := range names {
		for _, nth := range []int{1, 6, 40} {
			if name == "queue.create" || name == "queue.migrate" {
				if nth > 1 {
					continue // once in a life
				}
			}
			t.Run(fmt.Sprintf("%s#%d", name, nth), func(t *testing.T) { crashAt(t, name, nth) })
		}
	}
}

func crashAt(t *testing.T, name string, nth int) {
	t.Parallel()
	dir := t.TempDir()
	path, fired := filepath.Join(dir, "handsel.db"), filepath.Join(dir, "fired")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "HANDSEL_TEST_CHILD=crash", "CRASH_DB="+path,
		fmt.Sprintf("HANDSEL_FAILPOINT=%s#%d=kill", name, nth), "HANDSEL_FAILPOINT_LOG="+fired)
	var told, said bytes.Buffer
	child.Stdout, child.Stderr = &told, &said
	err := child.Run()
	if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("the child ended by itself: %v\n%s", err, said.String())
	}
	if log, err := os.ReadFile(fired); err != nil || !strings.Contains(string(log), name) {
		t.Fatalf("%s did not fire: %q, %v", name, log, err)
	}
	answered := map[string][]string{}
	for lines := bufio.NewScanner(&told); lines.Scan(); {
		id, what, _ := strings.Cut(lines.Text(), " ")
		answered[id] = append(answered[id], what)
	}
	db := open(t, path)
	stored := consistent(t, db)
	for id, want := range answered {
		got, known := stored[id]
		if !known && want[len(want)-1] == Ended {
			continue // pruned
		}
		if len(got) < len(want) || len(got) > len(want)+1 || !slices.Equal(got[:len(want)], want) {
			t.Errorf("attempt %s: answered %q, stored %q", id, want, got)
		}
	}
	accept(t, db, "it goes on")
}

// consistent fails unless the database is one that whole changes made, and tells
// the events of each attempt.
func consistent(t *testing.T, db *DB) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	became := map[string]string{}
	for after := int64(0); ; {
		events, err := db.Events(Filter{After: after})
		must(t, err)
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			before := all[e.Attempt]
			last := ""
			if len(before) > 0 {
				last = before[len(before)-1]
			}
			if !slices.Contains(walk[last], e.What) {
				t.Errorf("attempt %s: %q after %q", e.Attempt, e.What, before)
			}
			all[e.Attempt], became[e.Attempt] = append(before, e.What), e.To
			after = e.Seq
		}
	}
	live := Totals{}
	for id, list := range all {
		a := find(t, db, id)
		if a.State != became[id] {
			t.Errorf("attempt %s is %s after %q", id, a.State, list)
		}
		if fence, err := db.Fence(a.Row.Lane); err != nil || fence < a.Fence {
			t.Errorf("lane %s has fence %d, %v and attempt %s %d", a.Row.Lane, fence, err, id, a.Fence)
		}
		switch {
		case a.Waiting():
			live.Waiting++
		case a.State == record.Starting:
			live.Claimed++
		case a.State == record.Running:
			live.Running++
		}
	}
	rows := 0
	must(t, db.Rows(func(r *attempt.Row, token []byte) error {
		rows++
		if (token != nil) != (r.State == record.Starting) {
			t.Errorf("row %s is %s with token %x", r.ID, r.State, token)
		}
		return nil
	}))
	totals, err := db.Totals()
	must(t, err)
	if totals.Waiting != live.Waiting || totals.Claimed != live.Claimed || totals.Running != live.Running || int64(rows) != live.Waiting {
		t.Errorf("totals %+v, counted %+v, %d rows", totals, live, rows)
	}
	return all
}
