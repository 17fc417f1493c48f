package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// losing is a test that keeps the words with which it gave up.
type losing struct {
	testing.TB
	said string
}

func (l *losing) Helper() {}

func (l *losing) Fatalf(format string, args ...any) {
	l.said = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestCountIsWaitedForAsLongAsItMoves: a slow machine is waited for, one that
// stands still is given up, with what there is to say of it.
func TestCountIsWaitedForAsLongAsItMoves(t *testing.T) {
	for _, tt := range []struct {
		name  string
		left  func(since time.Duration) int
		gives string
	}{
		{"slowly", func(d time.Duration) int { return max(20-int(d/(patience-time.Second)), 0) }, ""},
		{"nobody answers now and then", func(d time.Duration) int {
			if d/time.Millisecond%2 == 0 {
				return unknown
			}
			return max(20-int(d/(patience-time.Second)), 0)
		}, ""},
		{"stands still", func(d time.Duration) int { return max(20-int(d/time.Second), 3) }, "(3 left of at most 20, at least 3, and no less for 1m0s)\nwhat is known"},
		{"goes up and down", func(d time.Duration) int { return 3 + int(d/time.Second)%2 }, "no less for 1m0s"},
		{"too many", func(time.Duration) int { return -1 }, "(-1 left"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, l := time.Now(), &losing{TB: t}
				done := make(chan struct{})
				go func() {
					defer close(done)
					dwindles(l, "it goes on", func() int { return tt.left(time.Since(from)) }, func() string { return "what is known" })
				}()
				<-done
				if (l.said == "") != (tt.gives == "") || !strings.Contains(l.said, tt.gives) {
					t.Errorf("given up after %v with %q", time.Since(from), l.said)
				}
			})
		})
	}
}

// TestLastLineIsNotThereBeforeItsNewline: a look at a file can meet a write that
// is on its way.
func TestLastLineIsNotThereBeforeItsNewline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if got := lines(path); got != "" {
		t.Errorf("without a file: %q", got)
	}
	for text, want := range map[string]string{"": "", "S a": "", "S a\n": "S a\n", "S a\nS b": "S a\n", "S a\n\n": "S a\n\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lines(path); got != want {
			t.Errorf("%q is read as %q", text, got)
		}
	}
}
