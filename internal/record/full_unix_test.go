//go:build unix

package record

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/handsel/handsel/internal/home"
)

// limited runs do while no file may grow beyond n bytes, which is what a full
// disk looks like to write(2): a part is taken, then an error.
func limited(t *testing.T, n uint64, do func()) {
	t.Helper()
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	limit := before
	setCur(&limit, n)
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	defer func() { must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before)) }()
	do()
}

func setCur(limit *syscall.Rlimit, n uint64) { limit.Cur = n }

func TestFullDiskStopsKeepingNotTheAgent(t *testing.T) { // E14, C089
	d, w, c := capture(t, 1<<20)
	text := numbers(100_000)
	limited(t, 40_000, func() {
		for rest := text; len(rest) > 0; rest = rest[min(1000, len(rest)):] {
			if n, err := c.Write(rest[:min(1000, len(rest))]); n != min(1000, len(rest)) || err != nil {
				t.Fatalf("Write = %d, %v", n, err)
			}
		}
	})
	// What was given back leaves room for the record.
	c.Write([]byte("more")) // there is room again: what is there must stay without a hole
	kept := c.Close()
	if _, ok := errors.AsType[*home.Unusable](kept.Err); !ok || kept.Seen != 100_004 || kept.Truncated != 60_004+reserve {
		t.Errorf("%+v", kept)
	}
	if got := outputOf(t, d, w.ID()); got != string(text[:40_000-reserve]) {
		t.Errorf("%d bytes are kept", len(got))
	}
}

func TestFullDiskAtTheEndLosesNoByteThatWasKept(t *testing.T) {
	d, w, c := capture(t, 80_000)
	text := numbers(1_000_000)
	c.Write(text)
	var kept Kept
	limited(t, 55_000, func() { kept = c.Close() })
	if _, ok := errors.AsType[*home.Unusable](kept.Err); !ok {
		t.Errorf("%+v", kept)
	}
	got := outputOf(t, d, w.ID())
	head, tail, ok := strings.Cut(got, "\n[handsel: ")
	_, tail, _ = strings.Cut(tail, "]\n")
	if !ok || !strings.HasPrefix(string(text), head) || !strings.HasSuffix(string(text), tail) ||
		int64(len(head)+len(tail)) != kept.Seen-kept.Truncated || strings.Contains(tail, "[handsel") {
		t.Errorf("head %d, tail %d, %+v", len(head), len(tail), kept)
	}
	if left, _ := os.ReadDir(w.Dir()); len(left) < 3 {
		t.Errorf("%v is left, want parts", left)
	}
}
