package attempt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/handsel/handsel/internal/home"
)

func newAttempt(t testing.TB) (d home.Dir, id string) {
	t.Helper()
	d, id = newHome(t), newID(t)
	must(t, Write(d, id, &Payload{Argv: [][]byte{{'x'}}, Cwd: []byte("/")}))
	return d, id
}

func TestOneOfDriverAndDispatcherDecides(t *testing.T) { // L14, L15
	d, id := newAttempt(t)
	if _, err := ReadBegun(d, id, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("an open start reads as %v", err)
	}
	must(t, Begin(d, id, 1, Begun{What: Began, Pid: 7, Ticks: 8, BootID: "b", At: At(noon)}))
	err := Begin(d, id, 1, Begun{What: Withdrawn, Pid: 9, At: At(noon)})
	taken, ok := errors.AsType[*Taken](err)
	if !ok || !errors.Is(err, ErrTaken) || taken.By.What != Began || taken.By.Pid != 7 || taken.By.Ticks != 8 || taken.Start != 1 {
		t.Fatalf("the second decision is %v", err)
	}
	got, err := ReadBegun(d, id, 1)
	if err != nil || *got != taken.By {
		t.Errorf("ReadBegun = %+v, %v", got, err)
	}
	must(t, Begin(d, id, 2, Begun{What: Withdrawn, Pid: 9, At: At(noon)})) // the next start is another
	if got, err := ReadBegun(d, id, 2); err != nil || got.What != Withdrawn {
		t.Errorf("the second start is %+v, %v", got, err)
	}
}

func TestManyDecideOnce(t *testing.T) {
	d, id := newAttempt(t)
	const rounds, racers = 50, 8
	for n := 1; n <= rounds; n++ {
		var won atomic.Int32
		var all sync.WaitGroup
		for i := range racers {
			all.Go(func() {
				what := [...]string{Began, Withdrawn}[i%2]
				switch err := Begin(d, id, n, Begun{What: what, Pid: i + 1, At: At(noon)}); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, ErrTaken):
					t.Error(err)
				}
				if got, err := ReadBegun(d, id, n); err != nil || got.Pid == 0 {
					t.Errorf("a decision is seen in part: %+v, %v", got, err)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Fatalf("start %d was decided %d times", n, won.Load())
		}
	}
	date, _ := dateOf(id)
	names, err := os.ReadDir(filepath.Join(d.Runs(), date, id))
	must(t, err)
	for _, entry := range names {
		if strings.HasPrefix(entry.Name(), ".") {
			t.Errorf("%s was left behind", entry.Name())
		}
	}
}

func TestDecisionNeedsAnAttempt(t *testing.T) {
	d, id := newAttempt(t)
	for _, tt := range []struct {
		id   string
		n    int
		what string
	}{{id, 0, Began}, {id, -1, Began}, {id, 1, "done"}, {id, 1, ""}, {newID(t), 1, Began}, {"../x", 1, Began}} {
		if err := Begin(d, tt.id, tt.n, Begun{What: tt.what}); err == nil || errors.Is(err, ErrTaken) {
			t.Errorf("Begin(%q, %d, %q) = %v", tt.id, tt.n, tt.what, err)
		}
	}
	date, _ := dateOf(id)
	must(t, os.WriteFile(filepath.Join(d.Runs(), date, id, "begun.3"), []byte("{}"), 0o600))
	if err := Begin(d, id, 3, Begun{What: Began}); err == nil || errors.Is(err, ErrTaken) {
		t.Errorf("a decision that cannot be read is %v, and may be either", err)
	}
}

func FuzzBegun(f *testing.F) {
	f.Add([]byte(`{"v":1,"what":"begun","pid":7,"start_ticks":8,"boot_id":"b","at":"2026-11-30T12:00:00.000Z"}`))
	f.Add([]byte(`{"v":1,"what":"Begun"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if b, err := decodeBegun(data); err == nil && (b.What != Began && b.What != Withdrawn || b.V < 1) {
			t.Fatalf("%q is read as %+v", data, b)
		}
	})
}
