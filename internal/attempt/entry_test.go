package attempt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/house/schema"
)

func entryOf(t testing.TB, lane string) *Entry {
	t.Helper()
	r := full(t)
	r.Lane = lane
	return EntryOf(r, Owner{Role: "dispatcher"}, HeartbeatFile)
}

func pathOf(d home.Dir, lane string) string {
	return filepath.Join(d.Queue(), home.LaneFile(lane)+".json")
}

func TestEntryComesBack(t *testing.T) { // L16
	d := newHome(t)
	if all, problems, err := Entries(d); all != nil || problems != nil || err != nil {
		t.Fatalf("a home without entries has %v, %v, %v", all, problems, err)
	}
	for _, lane := range []string{"a", "api/review ä\n", ".", strings.Repeat("\x01", 200), strings.Repeat("/", 199)} {
		want := entryOf(t, lane)
		want.Reason = &Reason{Class: "resource", Code: "pool_full", Message: "m", Until: At(noon), Retryable: true}
		must(t, WriteEntry(d, want))
		got, err := ReadEntry(d, lane)
		must(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("an entry came back as %+v, was %+v", got, want)
		}
		info, err := os.Stat(pathOf(d, lane))
		must(t, err)
		if info.Mode().Perm() != 0o600 {
			t.Errorf("an entry has mode %v", info.Mode())
		}
	}
	all, problems, err := Entries(d)
	if len(all) != 5 || problems != nil || err != nil {
		t.Errorf("Entries = %d, %v, %v", len(all), problems, err)
	}
	must(t, RemoveEntry(d, "a"))
	if err := RemoveEntry(d, "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removing it again is %v", err)
	}
	if _, err := ReadEntry(d, "a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed entry is %v", err)
	}
}

func TestEntrySaysNoCapsAndNoCommand(t *testing.T) { // L10
	text, err := encodeEntry(entryOf(t, "a"))
	must(t, err)
	for _, word := range []string{"HANDSEL_MAX", "argv0", "sha256", "author", "label", "driver"} {
		if strings.Contains(string(text), word) {
			t.Errorf("an entry has %q: %s", word, text)
		}
	}
}

func TestEntryHasTheShapeOfItsSchema(t *testing.T) { // C12
	for _, e := range []*Entry{
		entryOf(t, "a"),
		EntryOf(&Row{V: Version, Lane: "b", ID: newID(t), State: Queued, Placement: Placement{Cwd: "/", Workload: "heavy", Confinement: "none"}}, Owner{Role: "launcher", Pid: 7, Started: 8}, ""),
	} {
		for _, reason := range []*Reason{nil, {Class: "resource", Code: "pool_full", Message: "m"}, {Class: "time", Code: "not_before", Message: "m", Until: At(noon), Retryable: true}} {
			e.Reason = reason
			text, err := encodeEntry(e)
			must(t, err)
			schema.Check(t, "entry.schema", text)
		}
	}
}

func TestEntryIsWrittenInPlaceAsLongAsItFits(t *testing.T) { // G10, G11
	d := newHome(t)
	e := entryOf(t, "a")
	must(t, WriteEntry(d, e))
	inode := func() fs.FileInfo { info, err := os.Stat(pathOf(d, "a")); must(t, err); return info }
	first := inode()
	e.Reason = &Reason{Class: "hold", Code: "hold", Message: "short"}
	must(t, WriteEntry(d, e))
	if !os.SameFile(first, inode()) || first.Size() != entrySpace {
		t.Error("an entry that fits was not written in place")
	}
	e.Reason.Message = strings.Repeat("long ", entrySpace)
	must(t, WriteEntry(d, e))
	if os.SameFile(first, inode()) {
		t.Error("an entry that does not fit was written in place, where a reader may see half of it")
	}
	for _, message := range []string{strings.Repeat("long ", entrySpace), "short"} {
		e.Reason.Message = message
		must(t, WriteEntry(d, e))
		if got, err := ReadEntry(d, "a"); err != nil || got.Reason.Message != message {
			t.Errorf("a long entry's successor is %v", err)
		}
	}
	if inode().Size() != entrySpace {
		t.Errorf("a short entry has %d bytes again", inode().Size())
	}
}

func TestEntryIsNeverSeenInPart(t *testing.T) {
	d := newHome(t)
	e := entryOf(t, "a")
	must(t, WriteEntry(d, e))
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if got, err := ReadEntry(d, "a"); err != nil || got.Reason != nil && len(got.Reason.Message)%7 != 0 {
					t.Errorf("%+v, %v", got, err)
					return
				}
			}
		})
	}
	for i := range 400 {
		e.Reason = &Reason{Class: "hold", Message: strings.Repeat("1234567", 1+i*37%600)} // both sides of the space
		must(t, WriteEntry(d, e))
	}
	close(done)
	readers.Wait()
}

func TestWhatStandsInAnEntrysPlaceIsReplacedOrRefused(t *testing.T) {
	d := newHome(t)
	must(t, WriteEntry(d, entryOf(t, "x")))
	path, target := pathOf(d, "a"), filepath.Join(t.TempDir(), "target")
	precious, err := os.ReadFile(pathOf(d, "x")) // an entry, which would be overwritten in place
	must(t, err)
	must(t, os.WriteFile(target, precious, 0o600))
	for name, plant := range map[string]func() error{
		"a symbolic link": func() error { return os.Symlink(target, path) },
		"a hard link":     func() error { return os.Link(target, path) },
		"an empty file":   func() error { return os.WriteFile(path, nil, 0o600) },
		"others' to write": func() error {
			return errors.Join(os.WriteFile(path, make([]byte, entrySpace), 0o600), os.Chmod(path, 0o666))
		},
		"garbage": func() error { return os.WriteFile(path, []byte(strings.Repeat("[", entrySpace)), 0o600) },
	} {
		must(t, plant())
		want := entryOf(t, "a")
		if err := WriteEntry(d, want); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got, err := ReadEntry(d, "a"); err != nil || got.Attempt != want.Attempt {
			t.Errorf("%s: then %v", name, err)
		}
		must(t, os.Remove(path))
	}
	if text, err := os.ReadFile(target); err != nil || !bytes.Equal(text, precious) {
		t.Errorf("what a link meant is %q, %v", text, err)
	}
	must(t, os.Mkdir(path, 0o700))
	if err := WriteEntry(d, entryOf(t, "a")); err == nil {
		t.Error("a directory was taken for an entry")
	}
}

func TestEntryOfALaterVersionStays(t *testing.T) { // C12
	d := newHome(t)
	must(t, WriteEntry(d, entryOf(t, "a")))
	for _, text := range []string{`{"v":2,"lane":"a","new":true}`, ` { "lane":"a", "v" : 3}`} {
		padded := text + strings.Repeat(" ", entrySpace-len(text))
		for _, text := range []string{text, padded} {
			must(t, os.WriteFile(pathOf(d, "a"), []byte(text), 0o600))
			if err := WriteEntry(d, entryOf(t, "a")); !errors.Is(err, ErrNewer) {
				t.Errorf("WriteEntry = %v", err)
			}
			if got, err := os.ReadFile(pathOf(d, "a")); err != nil || string(got) != text {
				t.Errorf("it is %q now, %v", got, err)
			}
		}
	}
	must(t, os.WriteFile(pathOf(d, "a"), []byte(`{"v":2,"lane":"a","attempt":"x","new":true}`), 0o600))
	if got, err := ReadEntry(d, "a"); err != nil || got.Attempt != "x" || got.V != 2 {
		t.Errorf("what is known of it reads as %+v, %v", got, err)
	}
}

func TestEntryOfAnotherLaneIsRefused(t *testing.T) { // C11
	d := newHome(t)
	e := entryOf(t, "b")
	text, err := json.Marshal(e)
	must(t, err)
	must(t, WriteEntry(d, entryOf(t, "a")))
	must(t, os.WriteFile(pathOf(d, "a"), text, 0o600))
	must(t, os.WriteFile(filepath.Join(d.Queue(), ".tmp-1"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(d.Queue(), "README"), nil, 0o600))
	must(t, os.WriteFile(pathOf(d, "c"), []byte("{"), 0o600))
	must(t, WriteEntry(d, entryOf(t, "d")))
	if _, err := ReadEntry(d, "a"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the entry of another lane is %v", err)
	}
	all, problems, err := Entries(d)
	if len(all) != 1 || all[0].Lane != "d" || len(problems) != 2 || err != nil {
		t.Errorf("Entries = %v, %v, %v", all, problems, err)
	}
}

func TestSameTellsWhatNeedsNoWriting(t *testing.T) { // G11
	d := newHome(t)
	v, err := OpenView(d)
	must(t, err)
	defer v.Close()
	e := entryOf(t, "a")
	if v.Same(e) {
		t.Error("a missing entry is the same")
	}
	must(t, v.Write(e))
	if !v.Same(e) {
		t.Error("an entry is not the same as it was written")
	}
	e.Priority++
	if v.Same(e) {
		t.Error("another priority is the same")
	}
	must(t, v.Remove("a"))
}

func FuzzEntry(f *testing.F) {
	text, err := encodeEntry(entryOf(f, "a"))
	must(f, err)
	f.Add(text, "a.json")
	f.Add([]byte(`{"v":1,"lane":"../x"}`), "=2e.json")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		e, err := decodeEntry(data, name)
		if err != nil {
			return
		}
		if home.LaneFile(e.Lane)+suffix != name {
			t.Fatalf("the file %q is read as lane %q", name, e.Lane)
		}
		if _, err := encodeEntry(e); err != nil {
			t.Fatalf("an entry that was read cannot be written: %v", err)
		}
		_ = mayReplace(data)
	})
}

func BenchmarkWriteEntry(b *testing.B) {
	d := newHome(b)
	v, err := OpenView(d)
	must(b, err)
	defer v.Close()
	entries := make([]*Entry, 256)
	for i := range entries {
		entries[i] = entryOf(b, fmt.Sprint("lane-", i))
		must(b, v.Write(entries[i]))
	}
	b.Run("in place", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			must(b, v.Write(entries[i%len(entries)]))
		}
	})
	b.Run("same", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if !v.Same(entries[i%len(entries)]) {
				b.Fatal("not the same")
			}
		}
	})
}

func BenchmarkPayload(b *testing.B) {
	d := newHome(b)
	p := &Payload{Argv: Bytes(words), Env: Bytes(os.Environ()), Cwd: []byte("/w")}
	b.Run("put", func(b *testing.B) {
		for b.Loop() {
			f, err := Put(d, newID(b), p)
			must(b, err)
			b.StopTimer()
			must(b, f.Wait())
			b.StartTimer()
		}
	})
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			must(b, Write(d, newID(b), p))
		}
	})
}
