package record

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/home"
	"pgregory.net/rapid"
)

func tail(t testing.TB, d home.Dir, id string) *Tail {
	t.Helper()
	tl, err := OpenTail(d, id, "stdout")
	must(t, err)
	t.Cleanup(tl.Close)
	return tl
}

// A follower that looks after every write sees every byte once, whatever moves
// from part to part and into the head at the end.
func TestFollowerSeesEveryByteOnce(t *testing.T) {
	for _, cap := range []int64{1, 2, 7, 64, 400, 1 << 20} {
		d, w, c := capture(t, cap)
		tl := tail(t, d, w.ID())
		text := numbers(2000)
		var told bytes.Buffer
		for chunk := range bytes.Lines(text) {
			for _, b := range [][]byte{chunk[:len(chunk)/2], chunk[len(chunk)/2:]} {
				for len(b) > 0 { // a look in every part
					n := min(int64(len(b)), max((cap-cap/2)/tailParts, 1))
					_, err := c.Write(b[:n])
					must(t, err)
					must(t, tl.Copy(&told))
					b = b[n:]
				}
			}
			if cap < 64 && told.Len() > 300 {
				break // each turn of a part takes a moment
			}
		}
		kept := c.Close()
		must(t, tl.Finish(&told, kept.Seen))
		if want := text[:kept.Seen]; !bytes.Equal(told.Bytes(), want) {
			t.Errorf("cap %d: told %d bytes of %d: %.80q…", cap, told.Len(), len(want), told.Bytes())
		}
	}
}

// One that looks now and then is told of gaps, never twice of anything, and
// always of the end.
func TestSlowFollowerIsToldOfGaps(t *testing.T) {
	base := newHome(t)
	rapid.Check(t, func(r *rapid.T) {
		cap := rapid.Int64Range(3, 300).Draw(r, "cap")
		d := base
		w, err := Create(d, small(Running))
		must(t, err)
		defer w.Close()
		c, err := w.Capture("stdout", cap)
		must(t, err)
		tl, err := OpenTail(d, w.ID(), "stdout")
		must(t, err)
		defer tl.Close()
		var text, told bytes.Buffer
		for i := range rapid.IntRange(1, 6).Draw(r, "writes") {
			chunk := numbers(10 + i*7)[:rapid.IntRange(1, 120).Draw(r, "size")%40+1]
			chunk = append([]byte{byte('A' + i)}, chunk...)
			text.Write(chunk)
			_, err := c.Write(chunk)
			must(t, err)
			if rapid.Bool().Draw(r, "look") {
				must(t, tl.Copy(&told))
			}
		}
		kept := c.Close()
		must(t, tl.Finish(&told, kept.Seen))
		checkPieces(r, told.String(), text.String())
	})
}

// checkPieces makes sure that what was told are pieces of the text, in order,
// and the last of them its end.
func checkPieces(t *rapid.T, told, text string) {
	var pieces []string
	for {
		i := strings.Index(told, "\n[handsel: ")
		if i < 0 {
			break
		}
		pieces = append(pieces, told[:i])
		_, told, _ = strings.Cut(told[i+1:], "]\n")
	}
	pieces = append(pieces, told)
	if !strings.HasSuffix(text, pieces[len(pieces)-1]) {
		t.Fatalf("the end %q is not that of %q", pieces[len(pieces)-1], text)
	}
	for _, p := range pieces {
		_, rest, ok := strings.Cut(text, p)
		if !ok {
			t.Fatalf("piece %q of %q is not next in what is left: %q", p, pieces, text)
		}
		if len(pieces) > 1 {
			text = rest
		}
	}
}

func TestTailOfNothingIsAbsent(t *testing.T) {
	d := newHome(t)
	w, err := Create(d, small(Running))
	must(t, err)
	defer w.Close()
	for _, id := range []string{w.ID(), NewID(), "x"} {
		if _, err := OpenTail(d, id, "stdout"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("OpenTail(%s) = %v", id, err)
		}
	}
}

// A follower hears that an output grows without looking again and again, also of
// a run whose directory is not there yet.
func TestGrowthIsTold(t *testing.T) {
	d := newHome(t)
	r := small(Running)
	r.ID = NewID()
	ctx, stop := context.WithCancel(context.Background())
	grown := Growth(ctx, d, r.ID)
	<-grown // there is nothing to watch, so it is looked at
	w, err := Create(d, r)
	must(t, err)
	defer w.Close()
	c, err := w.Capture("stdout", 100)
	must(t, err)
	for seen := false; !seen; {
		<-grown
		_, err := os.Stat(Dir(d, r.ID) + "/stdout")
		seen = err == nil
	}
	_, _ = c.Write([]byte("x"))
	<-grown
	c.Close()
	stop()
	for range grown { // it ends with its context
	}
}
