package engine

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/handsel/handsel/internal/stream"
)

// noon is when recorded streams are read, for what they tell relative to it.
var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// replayed is what a recorded stream comes to.
type replayed struct {
	events  []stream.Event
	summary stream.Summary
}

// replay reads a recorded run, stderr before stdout, as the real one did while
// it tried again: testdata/NAME.stdout and, where there is one, NAME.stderr.
func replay(t *testing.T, d stream.Decoder, name string) (r replayed) {
	t.Helper()
	out, err := os.ReadFile(filepath.Join("testdata", name+".stdout"))
	if err != nil {
		t.Fatal(err)
	}
	said, err := os.ReadFile(filepath.Join("testdata", name+".stderr"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	reader := stream.NewReader(d, stream.Options{Emit: func(e stream.Event) { r.events = append(r.events, e) }})
	for _, part := range []struct {
		to interface{ Write([]byte) (int, error) }
		b  []byte
	}{{reader.Stderr(), said}, {reader, out}} {
		if _, err := part.to.Write(part.b); err != nil {
			t.Fatal(err)
		}
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	r.summary = reader.Summary()
	return r
}

// kinds are the kinds of the events in order, those that follow each other once.
func (r replayed) kinds() string {
	var all []string
	for _, e := range r.events {
		if kind := string(e.Kind); len(all) == 0 || all[len(all)-1] != kind {
			all = append(all, kind)
		}
	}
	return strings.Join(all, " ")
}

// ending is a recorded run and what it must come to.
type ending struct {
	name  string // of the recording
	exit  int    // the status it ended with
	kinds string
	kind  stream.Fault // "": it succeeded
	until time.Time
	text  string // in the answer, or in the message of what failed
}

func (tt ending) check(t *testing.T, r replayed) {
	t.Helper()
	end := r.summary.End(stream.Exit{Started: true, Code: tt.exit})
	if end.Kind != tt.kind || end.Succeeded != (tt.kind == "") || !end.Until.Equal(tt.until) {
		t.Errorf("%s ends as %+v, want %q until %v", tt.name, end, tt.kind, tt.until)
	}
	said := end.Message
	if end.Succeeded {
		said = r.summary.Result.Text
	}
	if !strings.Contains(said, tt.text) {
		t.Errorf("%s says %q, want %q in it", tt.name, said, tt.text)
	}
	if got := r.kinds(); got != tt.kinds {
		t.Errorf("%s has %q, want %q", tt.name, got, tt.kinds)
	}
	for _, e := range r.events {
		if (e.Kind == stream.Limit || e.Kind == stream.Trouble || e.Failed) && e.Fault == "" {
			t.Errorf("%s: %+v says no kind of fault", tt.name, e)
		}
	}
}

// fuzzDecoder: whatever the lines are, a decoder says only what events can say.
func fuzzDecoder(f *testing.F, engine string, make func() stream.Decoder) {
	found, err := filepath.Glob("testdata/" + engine + "/*")
	if err != nil || len(found) == 0 {
		f.Fatalf("%d recordings of %s: %v", len(found), engine, err)
	}
	for _, path := range found {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, strings.HasSuffix(path, ".stderr"))
	}
	f.Fuzz(func(t *testing.T, data []byte, text bool) {
		said := 0
		r := stream.NewReader(make(), stream.Options{Bound: 4 << 10, Emit: func(e stream.Event) {
			said++
			switch e.Kind {
			case stream.Session, stream.Text, stream.Tool, stream.Spent:
			case stream.Limit, stream.Trouble:
				if e.Fault == "" {
					t.Fatalf("%+v says no kind of fault", e)
				}
			case stream.Result:
				if e.Failed == (e.Fault == "") {
					t.Fatalf("result %+v: failed and no fault, or a fault and not failed", e)
				}
			default:
				t.Fatalf("an event of kind %q", e.Kind)
			}
			if e.Status != 0 && (e.Status < 100 || e.Status > 599) || !e.Until.IsZero() && e.Until.Before(time.Unix(0, 0)) {
				t.Fatalf("%+v is no status or time of a service", e)
			}
		}})
		if text {
			_, _ = r.Stderr().Write(data)
		} else {
			_, _ = r.Write(data)
		}
		_ = r.Close()
		if lines := bytes.Count(data, []byte{'\n'}) + bytes.Count(data, []byte{'}'}) + 1; said > 20*lines {
			t.Fatalf("%d events of %d lines", said, lines)
		}
	})
}
