package queue

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/record"
)

// children are what this test binary can be started as, by HANDSEL_TEST_CHILD.
var children = map[string]func(){}

func TestMain(m *testing.M) {
	if child := children[os.Getenv("HANDSEL_TEST_CHILD")]; child != nil {
		child()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var ctx = context.Background()

// row is a row as launchers send them.
func row(lane string) *attempt.Row {
	now := time.Now()
	return &attempt.Row{
		V: attempt.Version, Lane: lane, ID: record.NewID(), QueueStart: attempt.At(now), BootStartNS: now.UnixNano() % 1e15,
		BootID: "6b1c0d3e-8a44-4c59-9d0f-0d6a1f6f2b55", EpochMS: now.UnixMilli() - 1e6, Priority: 3,
		Placement: attempt.Placement{Cwd: "/srv/work/somewhere/project", Engine: "claude", Workload: "heavy", Confinement: "none"},
		Author:    "somebody", Argv0: "claude", Argc: 3, Command: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	}
}

func open(t testing.TB, path string) *DB {
	t.Helper()
	db, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func must(t interface {
	Helper()
	Fatal(...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fillRows(t testing.TB, db *DB, n int) {
	var all sync.WaitGroup
	for w := range 64 {
		all.Go(func() {
			for i := w; i < n; i += 64 {
				if err := db.Accept(ctx, row(fmt.Sprintf("lane-%d", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}
