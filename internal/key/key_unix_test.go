//go:build unix

package key

import (
	"context"
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/home"
)

func place(t *testing.T) home.Dir {
	t.Helper()
	d := home.Dir{Path: filepath.Join(t.TempDir(), "home"), From: home.Variable}
	if err := d.Ensure(); err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	this  = sha256.Sum256([]byte("this"))
	other = sha256.Sum256([]byte("other"))
)

func id(text string) func() string { return func() string { return text } }

// take takes a key that must be had.
func take(t *testing.T, d home.Dir, text string, request [sha256.Size]byte, fresh string) *Taken {
	t.Helper()
	k, err := Take(t.Context(), d, text, request, id(fresh))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A key stands for the run of the request it was first used for, and for nothing
// before that was written down.
func TestKeyStandsForOneRun(t *testing.T) {
	d := place(t)
	k := take(t, d, "k", this, "one")
	if k.Known || k.ID != "one" {
		t.Fatalf("a new key: %+v", k)
	}
	k.Done() // nothing was begun
	if k = take(t, d, "k", this, "two"); k.Known || k.ID != "two" {
		t.Errorf("a key that was not written down: %+v", k)
	}
	if err := k.Begin(id("unused")); err != nil {
		t.Fatal(err)
	}
	k.Done()
	if k = take(t, d, "k", this, "three"); !k.Known || k.ID != "two" {
		t.Errorf("the same again: %+v", k)
	}
	k.Done()
	if _, err := Take(t.Context(), d, "k", other, id("three")); !errors.As(err, new(*Other)) {
		t.Errorf("another request: %v", err)
	}
	k = take(t, d, "k", this, "three")
	if err := k.Drop(); err != nil {
		t.Fatal(err)
	}
	if k = take(t, d, "k", other, "four"); k.Known {
		t.Errorf("a key that was given back: %+v", k)
	}
	k.Done()
}

// Of many at once one begins, and all have its id.
func TestOneOfManyBegins(t *testing.T) {
	d := place(t)
	var wait sync.WaitGroup
	var mu sync.Mutex
	ids, began := map[string]bool{}, 0
	for n := range 20 {
		wait.Go(func() {
			k, err := Take(context.Background(), d, "k", this, id(strings.Repeat("x", n+1)))
			if err != nil {
				t.Error(err)
				return
			}
			defer k.Done()
			mu.Lock()
			defer mu.Unlock()
			if ids[k.ID] = true; !k.Known {
				began++
				if err := k.Begin(id("unused")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if len(ids) != 1 || began != 1 {
		t.Errorf("%d ids, and %d began", len(ids), began)
	}
}

func TestTextsThatAreNoKeys(t *testing.T) {
	d := place(t)
	for _, text := range []string{"", strings.Repeat("x", Most+1)} {
		if _, err := Take(t.Context(), d, text, this, id("one")); !errors.As(err, new(*Bad)) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
	k := take(t, d, "../../x\n", this, "one")
	if err := k.Begin(nil); err != nil {
		t.Fatal(err)
	}
	k.Done()
	if all, err := filepath.Glob(filepath.Join(d.Path, Dir, "*.json")); err != nil || len(all) != 1 {
		t.Errorf("files %q, %v", all, err)
	}
}

// A key goes when its run is gone and it is old, and not while somebody uses it
// again; one that outlived its run stands for a new one.
func TestKeysGoAfterTheirRuns(t *testing.T) {
	d := place(t)
	gone := map[string]bool{}
	is := func(id string) bool { return gone[id] }
	k := take(t, d, "k", this, "one")
	if err := k.Begin(nil); err != nil {
		t.Fatal(err)
	}
	k.Done()
	now, later := time.Now(), time.Now().Add(2*keptFor)
	idle := func(now time.Time) []Stale {
		t.Helper()
		all, err := Idle(d, now, is)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := idle(later); len(all) > 0 {
		t.Errorf("with its run there: %+v", all)
	}
	gone["one"] = true
	if all := idle(now); len(all) > 0 {
		t.Errorf("a young one: %+v", all)
	}
	all := idle(later)
	if len(all) != 1 || all[0].ID != "one" {
		t.Fatalf("idle: %+v", all)
	}
	if err := Remove(t.Context(), d, all[0], now); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that came into use: %v", err)
	}
	old := now.Add(-2 * keptFor)
	if err := os.Chtimes(all[0].Path, old, old); err != nil {
		t.Fatal(err)
	}
	k = take(t, d, "k", this, "unused")
	if err := k.Begin(id("two")); err != nil || k.ID != "two" {
		t.Errorf("after its run: %+v, %v", k, err)
	}
	k.Done()
	if err := Remove(t.Context(), d, all[0], later); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that stands for a new run: %v", err)
	}
	gone["two"] = true
	if err := Remove(t.Context(), d, idle(later)[0], later); err != nil {
		t.Fatal(err)
	}
	if all := idle(later); len(all) > 0 {
		t.Errorf("left: %+v", all)
	}
}
