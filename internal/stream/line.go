package stream

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// line takes the last part of a line, and with it the whole. A line that comes in
// one part is read where it is.
func (r *Reader) line(part []byte) {
	if r.grown == 0 && len(part) <= r.bound {
		r.split(part, r.at, false)
		r.at += int64(len(part))
	} else {
		r.more(part)
		r.finish(false)
	}
	r.at++
	r.next()
}

// last takes what has no newline for a line, if it may be one.
func (r *Reader) last() {
	if r.grown > 0 {
		r.finish(true)
		r.next()
	}
}

// next begins another line.
func (r *Reader) next() {
	r.counts.Lines++
	r.skip, r.objects, r.grown = false, 0, 0
}

// more takes a part of a line that goes on.
func (r *Reader) more(part []byte) {
	r.grow(len(part))
	for len(part) > 0 {
		n := len(part)
		switch {
		case r.skip:
			r.at += int64(n)
		case r.long != nil:
			n = r.shorten(part)
		default:
			n = r.keep(part)
		}
		part = part[n:]
	}
}

// grow counts what arrives of a line as progress, from time to time.
func (r *Reader) grow(n int) {
	const step = 64 << 10
	was := r.grown / step
	if r.grown += n; r.grown/step > was {
		r.progress()
	}
}

// keep puts some of part into the buffer: one byte more than the bound, so that
// it is the line that decides what becomes of it, and not how it came.
func (r *Reader) keep(part []byte) int {
	n := min(len(part), r.bound+1-len(r.buf))
	if need := len(r.buf) + n; need > cap(r.buf) {
		size := min(max(need, 2*cap(r.buf), firstSpare), r.bound+1)
		r.buf = append(make([]byte, 0, size), r.buf...)
	}
	r.buf = append(r.buf, part[:n]...)
	r.at += int64(n)
	if len(r.buf) > r.bound {
		r.overflow()
	}
	return n
}

// giveBack empties the buffer, and lets go of a large one.
func (r *Reader) giveBack() {
	r.buf = r.buf[:0]
	if cap(r.buf) > mostSpare {
		r.buf = nil
	}
}

// finish reads what is left of a line that came in parts.
func (r *Reader) finish(last bool) {
	switch {
	case r.long == nil && r.skip:
	case r.long == nil:
		r.split(r.buf, r.at-int64(len(r.buf)), last)
	case r.long.until > 0:
		r.shortened()
	case last:
		r.partial(r.long.out, r.at-r.long.from)
	default:
		r.counts.Broken++
	}
	r.long = nil
	r.giveBack()
}

// split reads a line, or what is left of it, that begins at offset at.
func (r *Reader) split(b []byte, at int64, last bool) {
	if r.decoder == nil {
		r.judge(b)
		return
	}
	line := b
	r.told = told{}
	r.flaws(b)
	for f := whole; f == whole; {
		var n int
		n, f = r.object(b, at)
		b, at = b[n:], at+int64(n)
		switch {
		case f == whole:
		case f == nothing && r.objects == 0:
			r.counts.Empty++
		case f == nothing:
		case last && f != broken:
			r.partial(b, int64(len(b)))
		case f != other:
			r.counts.Broken++
		case json.Valid(b):
			r.counts.Values++
		default:
			r.counts.Text++
		}
	}
	r.judge(line)
}

// judge says whether a line is progress. See Summary.Progress.
func (r *Reader) judge(line []byte) {
	if before(line).length == len(line) {
		return
	}
	fresh := r.recent.line(line)
	if !fresh {
		r.counts.Repeated++
	}
	if r.told.progress(fresh) {
		r.progress()
	}
}

// object reads one object at the beginning of b, which begins at offset at, with
// what may stand in front of it. n is how much it took, of something that is no
// whole object only what stands in front of it.
func (r *Reader) object(b []byte, at int64) (n int, f found) {
	front := before(b)
	n = front.length
	switch {
	case n == len(b):
		return n, nothing
	case b[n] != '{':
		return n, other
	}
	size, kind, f := object(b[n:])
	if f != broken {
		r.front(front)
	}
	if f == whole {
		r.decode(Line{Data: b[n : n+size], Type: kind, Offset: at + int64(n), Len: int64(size)})
		n += size
	}
	return n, f
}

// front counts an object, and what stands in front of it.
func (r *Reader) front(p preface) {
	if r.objects++; r.objects > 1 {
		r.counts.Joined++
	}
	if p.sequence {
		r.counts.Titles++
	}
	if p.bom {
		r.counts.BOMs++
	}
}

func (r *Reader) decode(l Line) {
	r.counts.Objects++
	r.events(r.decoder.Line(l), l)
}

// flaws counts what is wrong with the bytes of a line.
func (r *Reader) flaws(b []byte) {
	if bytes.IndexByte(b, 0) >= 0 {
		r.counts.NULs++
	}
	if !utf8.Valid(b) {
		r.counts.NotUTF8++
	}
}

// mostTail is how much of a partial line is remembered, in bytes: enough for a
// question that waits for its answer (C128).
const mostTail = 200

// partial remembers a last line that is none, of n bytes.
func (r *Reader) partial(b []byte, n int64) {
	r.counts.Partial = n
	tail := clean(b[:min(len(b), 2*mostTail)], mostTail)
	r.mu.Lock()
	r.summary.Tail = tail
	r.mu.Unlock()
}

// long is an object that is being shortened while it arrives.
type long struct {
	*compactor
	from, until int64 // where it begins and ends in the stream; until is 0 before it has ended
}

// overflow deals with a line that has become longer than the bound. What is whole
// in it is handed over, what is not is shortened from here on.
func (r *Reader) overflow() {
	b, f := r.buf, whole
	if r.decoder == nil {
		f = nothing
		r.skip = true
	}
	r.told = told{}
	for f == whole {
		var n int
		n, f = r.object(b, r.at-int64(len(b)))
		b = b[n:]
	}
	switch f {
	case other:
		r.counts.Text++
		r.skip = true
	case broken:
		r.counts.Broken++
		r.skip = true
	case unfinished:
		end := r.at
		r.at -= int64(len(b))
		r.long = &long{compactor: newCompactor(min(mostKept, r.bound)), from: r.at}
		r.shorten(b)
		r.at = end
	}
	r.progress()
	r.giveBack()
}

// shorten gives the object that is being shortened what it takes of part, and
// says how much that was.
func (r *Reader) shorten(part []byte) int {
	if r.long.until > 0 {
		n := before(part).length
		if n < len(part) { // something else stands behind the object
			r.shortened()
			n = 0
		}
		r.at += int64(n)
		return n
	}
	n, done, fits := r.long.feed(part)
	r.at += int64(n)
	switch {
	case !fits:
		r.counts.TooLong++
		r.long, r.skip = nil, true
	case done:
		r.long.until = r.at
	}
	return n
}

// shortened hands over what is left of an object that was too long.
func (r *Reader) shortened() {
	l := r.long
	r.long = nil
	r.flaws(l.out)
	_, kind, f := object(l.out)
	if f != whole {
		r.counts.Broken++
		r.skip = true
		return
	}
	r.counts.Cut++
	r.decode(Line{Data: l.out, Type: kind, Offset: l.from, Len: l.until - l.from, Cut: l.cut})
}
