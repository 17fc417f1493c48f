package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"
)

// maxWaiting is how many bytes of messages may wait to be taken up. Beyond it
// nothing is read until some of them were.
const maxWaiting = 2 * maxLine

// intake reads lines ahead of whoever takes them up, so that the end of the input
// is noticed also while an answer cannot be written.
type intake struct {
	ended chan struct{} // closed when the input has ended

	mu      sync.Mutex
	changed *sync.Cond
	waiting []*parcel
	bytes   int
	over    bool  // nothing more comes
	err     error // why, where it is not the end of the input
	stopped bool  // nobody takes anything up any more
}

func newIntake() *intake {
	in := &intake{ended: make(chan struct{})}
	in.changed = sync.NewCond(&in.mu)
	return in
}

// read reads until the input ends.
func (in *intake) read(from io.Reader) {
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		p, err := nextLine(lines)
		if p != nil && !in.put(p) {
			break
		}
		if err != nil {
			in.end(err)
			break
		}
	}
}

// nextLine reads a line. Beyond maxLine it is followed, and not kept.
func nextLine(from *bufio.Reader) (*parcel, error) {
	p := &parcel{}
	any := false
	for {
		piece, err := from.ReadSlice('\n')
		any = any || len(piece) > 0
		p.scan.feed(piece)
		switch {
		case p.long:
		case len(p.text)+len(piece) > maxLine+1: // the line's end is not part of it
			p.text, p.long = nil, true
		default:
			p.text = append(p.text, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && !any:
			return nil, err
		}
		p.text = bytes.TrimSuffix(p.text, []byte("\n"))
		return p, err
	}
}

// put waits until there is room. It is false when nobody takes lines any more.
func (in *intake) put(p *parcel) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	for in.bytes > maxWaiting && !in.stopped {
		in.changed.Wait()
	}
	if in.stopped {
		return false
	}
	in.waiting, in.bytes = append(in.waiting, p), in.bytes+cost(p)
	in.changed.Broadcast()
	return true
}

// cost is what a line that waits takes, with what stands for it.
func cost(p *parcel) int { return len(p.text) + 256 }

func (in *intake) end(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over = true; !errors.Is(err, io.EOF) {
		in.err = err
	}
	close(in.ended)
	in.changed.Broadcast()
}

// take is the next line. It waits for one; the error is io.EOF when none comes.
func (in *intake) take() (*parcel, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.waiting) == 0 && !in.over && !in.stopped {
		in.changed.Wait()
	}
	if in.stopped || len(in.waiting) == 0 {
		return nil, io.EOF
	}
	p := in.waiting[0]
	in.waiting[0] = nil
	in.waiting, in.bytes = in.waiting[1:], in.bytes-cost(p)
	in.changed.Broadcast()
	return p, nil
}

// stop makes take and put return.
func (in *intake) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stopped = true
	in.changed.Broadcast()
}
