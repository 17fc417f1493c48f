package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/home"
)

// Tail reads an output while it grows. What it has told once it does not tell
// again, also when the parts of the tail are joined to the head at the end. It
// is for one goroutine.
type Tail struct {
	dir  *home.Folder
	name string

	head  *os.File
	whole int64    // bytes in the head before anything is joined to it; -1 = not known yet
	part  *os.File // of the tail; nil = still in the head
	n     int      // its number
	size  int64    // bytes in a part that is full; 0 = not known
	told  int64    // bytes of the output that were told or passed over
	owed  int64    // parts that were passed over before their size was known
}

// OpenTail begins to read an output of a run, "stdout" or "stderr". It is
// fs.ErrNotExist as long as there is none.
func OpenTail(d home.Dir, id, name string) (*Tail, error) {
	date, ok := dateOf(id)
	if !ok {
		return nil, fmt.Errorf("output of %q: %w", id, fs.ErrNotExist)
	}
	dir, err := d.Open(runsDir, date, id)
	if err != nil {
		return nil, fmt.Errorf("output of %s: %w", id, err)
	}
	head, err := dir.OpenRead(name)
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("output of %s: %w", id, err)
	}
	return &Tail{dir: dir, name: name, head: head, whole: -1, n: -1}, nil
}

// Close closes what is open.
func (t *Tail) Close() {
	t.head.Close()
	if t.part != nil {
		t.part.Close()
	}
	t.dir.Close()
}

// Copy tells w all that came since the last call.
func (t *Tail) Copy(w io.Writer) error {
	for {
		from := t.part
		if from == nil {
			from = t.head
		}
		if err := t.tell(w, from); err != nil {
			return err
		}
		numbers, err := t.numbers()
		if err != nil {
			return err
		}
		next, ok := t.after(numbers)
		if !ok || t.part == nil && !t.settled(numbers) {
			return nil
		}
		if t.part != nil { // a later part is there, so this one is full
			if err := t.tell(w, t.part); err != nil {
				return err
			}
		}
		if err := t.turn(w, next, numbers); err != nil {
			return err
		}
	}
}

func (t *Tail) tell(w io.Writer, from io.Reader) error {
	n, err := io.Copy(w, from)
	t.told += n
	return err
}

// numbers are those of the tail's parts that are there, in order.
func (t *Tail) numbers() ([]int, error) {
	names, err := t.dir.Names()
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, name := range names {
		if text, ok := strings.CutPrefix(name, t.name+tailMark); ok {
			if n, err := strconv.Atoi(text); err == nil {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// after is the first part behind the present one.
func (t *Tail) after(numbers []int) (int, bool) {
	i, _ := slices.BinarySearch(numbers, t.n+1)
	if i == len(numbers) {
		return 0, false
	}
	return numbers[i], true
}

// settleFor is how long a head that has stopped growing must stay as it is: one
// to which parts are being joined grows, and its parts go away.
const settleFor = 10 * time.Millisecond

// settled tells whether the head has its share and nothing was joined to it.
func (t *Tail) settled(numbers []int) bool {
	before, err := t.head.Stat()
	if err != nil || before.Size() != t.told {
		return false
	}
	time.Sleep(settleFor)
	again, err := t.numbers()
	after, statErr := t.head.Stat()
	if err != nil || statErr != nil || after.Size() != before.Size() || len(again) == 0 || again[0] < numbers[0] {
		return false
	}
	t.whole = after.Size()
	return true
}

// turn goes on with part n. What lies between, nobody has any more.
func (t *Tail) turn(w io.Writer, n int, numbers []int) error {
	next, err := t.dir.OpenRead(partName(t.name, n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has just gone, too: the next look sees what is there
	}
	if err != nil {
		return err
	}
	if t.part != nil {
		t.size = lengthOf(t.part)
		t.part.Close()
	} else if n < numbers[len(numbers)-1] {
		t.size = lengthOf(next)
	}
	missed := int64(n - t.n - 1)
	if t.owed += missed; t.size > 0 {
		t.told, t.owed = t.told+t.owed*t.size, 0
	}
	if missed > 0 {
		if _, err := io.WriteString(w, gap("some")); err != nil {
			next.Close()
			return err
		}
	}
	t.part, t.n = next, n
	return nil
}

func lengthOf(f *os.File) int64 {
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// Finish tells the rest of an output that has seen so many bytes in all, when
// nothing more will come: parts that were never looked at are at the end of the
// head by now.
func (t *Tail) Finish(w io.Writer, seen int64) error {
	if err := t.Copy(w); err != nil {
		return err
	}
	kept := t.joined(seen)
	rest := min(seen-t.told, kept)
	if t.part == nil || rest <= 0 || t.owed > 0 { // with owed, where we are is not known
		return nil
	}
	if missed := seen - kept - t.told; missed > 0 {
		if _, err := io.WriteString(w, gap(strconv.FormatInt(missed, 10))); err != nil {
			return err
		}
	}
	if _, err := t.head.Seek(-rest, io.SeekEnd); err != nil {
		return err
	}
	return t.tell(w, t.head)
}

// joined is how many of the last bytes of an output are at the end of its head,
// behind the line that tells how many are left out.
func (t *Tail) joined(seen int64) int64 {
	behind := lengthOf(t.head) - t.whole
	if t.part == nil || behind <= 0 {
		return 0
	}
	for digits := 1; digits < 20; digits++ { // the line's length depends on what it says
		line := int64(len(gap("")) + digits)
		want := gap(strconv.FormatInt(seen-t.whole-(behind-line), 10))
		got := make([]byte, line)
		if n, _ := t.head.ReadAt(got, t.whole); string(got[:n]) == want {
			return behind - line
		}
	}
	return behind // nothing is left out
}

// LastWritten is when something was last added to an output of a run.
// fs.ErrNotExist when there is none.
func LastWritten(d home.Dir, id, name string) (time.Time, error) {
	date, ok := dateOf(id)
	if !ok {
		return time.Time{}, fmt.Errorf("output of %q: %w", id, fs.ErrNotExist)
	}
	dir, err := d.Open(runsDir, date, id)
	if err != nil {
		return time.Time{}, fmt.Errorf("output of %s: %w", id, err)
	}
	defer dir.Close()
	names, err := dir.Names()
	if err != nil {
		return time.Time{}, fmt.Errorf("output of %s: %w", id, err)
	}
	last := ""
	for _, each := range names {
		if each == name && last == "" || strings.HasPrefix(each, name+tailMark) && each > last {
			last = each
		}
	}
	file, err := dir.OpenRead(cmp.Or(last, name))
	if err != nil {
		return time.Time{}, fmt.Errorf("output of %s: %w", id, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// growPoll is how often an output is looked at where no event tells that it grew.
const growPoll = 250 * time.Millisecond

// Growth tells that a file of the run's directory may have changed, until ctx
// ends; then it is closed. The directory need not be there yet. Changes that come
// while nobody listens are one.
func Growth(ctx context.Context, d home.Dir, id string) <-chan struct{} {
	grown := make(chan struct{}, 1)
	go func() {
		defer close(grown)
		for ctx.Err() == nil {
			if !watchGrowth(ctx, Dir(d, id), grown) {
				tellGrowth(grown)
				select {
				case <-time.After(growPoll):
				case <-ctx.Done():
				}
			}
		}
	}()
	return grown
}

func tellGrowth(grown chan<- struct{}) {
	select {
	case grown <- struct{}{}:
	default:
	}
}

// Dir is the directory of a run, whether it is there or not.
func Dir(d home.Dir, id string) string {
	date, _ := dateOf(id)
	return d.Runs() + string(os.PathSeparator) + date + string(os.PathSeparator) + id
}
