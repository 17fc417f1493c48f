package stream

// leastHead is the least that is kept of a string, in bytes, before an object is
// called too long: what engines put into ids, names and words for states fits.
const leastHead = 64

// compactor shortens one JSON object that is too long to be kept, while it
// arrives: its structure stays, of each long string the beginning stays, and what
// stays is never more than half as much again as most. How much of a string stays
// depends on how much there is: half of what there is room for at first, and half
// of that again whenever the room is used up.
//
// It counts brackets and proves no grammar: what it makes of an object is as
// right or wrong as the object was.
type compactor struct {
	out  []byte
	most int   // bytes that out should have
	head int   // bytes of a string that stay
	cut  int64 // bytes of strings passed over

	depth int // of open brackets
	in    place
	kept  int    // bytes of the string under way that are in out
	skip  bool   // the rest of it is passed over
	left  int    // digits of the \u under way still to come
	code  uint16 // what its digits say
	high  bool   // the token before was the first half of a pair
}

// place is where in a JSON text a compactor is.
type place int

const (
	outside place = iota
	inside        // a string
	escaped       // after a backslash
	digit         // among those of \u
)

func newCompactor(most int) *compactor { return &compactor{most: most, head: max(most/2, leastHead)} }

// feed reads on. done tells whether the object has ended, after the first n bytes
// of p; fits is false when it cannot be shortened to what there is room for. What
// comes out does not depend on how the object is cut into calls.
func (c *compactor) feed(p []byte) (n int, done, fits bool) {
	for i := 0; i < len(p); {
		if c.in == outside {
			i++
			if c.structure(p[i-1]) {
				return i, true, true
			}
		} else {
			i += c.string(p[i:])
		}
		if len(c.out) > c.most && !c.squeeze() {
			return i, false, false
		}
	}
	return len(p), false, true
}

// structure takes a byte outside of strings, and tells whether it was the last.
func (c *compactor) structure(b byte) bool {
	if blank(b) {
		return false
	}
	c.out = append(c.out, b)
	switch b {
	case '"':
		c.in, c.kept, c.skip, c.high = inside, 0, false, false
	case '{', '[':
		c.depth++
	case '}', ']':
		c.depth--
	}
	return c.depth <= 0
}

// string takes at least one byte of a string, and says how many.
func (c *compactor) string(p []byte) int {
	b := p[0]
	switch c.in {
	case escaped:
		c.in, c.high = inside, false
		if b == 'u' {
			c.in, c.left, c.code = digit, 4, 0
		}
		c.keep(p[:1])
		return 1
	case digit:
		d, _ := hex(b)
		c.code = c.code<<4 | d
		if c.left--; c.left == 0 {
			c.in, c.high = inside, c.code&0xfc00 == 0xd800
		}
		c.keep(p[:1])
		return 1
	}
	if b == '"' {
		c.in = outside
		c.out = append(c.out, b)
		return 1
	}
	// A string ends between characters, and not in the middle of a pair, unless
	// there is no end of it: of what is proper, eight bytes more are enough.
	if middle := b&0xc0 == 0x80 || c.high && b == '\\'; c.kept >= c.head && !middle || c.kept > c.head+8 {
		c.skip = true
	}
	if b == '\\' {
		c.in = escaped
		c.keep(p[:1])
		return 1
	}
	c.high = false
	n := max(plain(p), 1)
	if !c.skip {
		// At most to where feed looks whether there is still room.
		n = max(min(n, c.head-c.kept, c.most+1-len(c.out)), 1)
	}
	c.keep(p[:n])
	return n
}

func (c *compactor) keep(p []byte) {
	if c.skip {
		c.cut += int64(len(p))
		return
	}
	c.kept += len(p)
	c.out = append(c.out, p...)
}

// squeeze shortens all strings more, and tells whether that was enough.
func (c *compactor) squeeze() bool {
	for len(c.out) > c.most/2 && c.head > leastHead {
		// It writes where it reads, and is never ahead of itself.
		less := compactor{out: c.out[:0], most: len(c.out), head: max(c.head/2, leastHead)}
		less.feed(c.out)
		if c.skip && c.in != outside {
			// The string under way was longer than what less has seen of it.
			less.skip, less.in, less.left, less.code, less.high = true, c.in, c.left, c.code, c.high
		}
		less.cut += c.cut
		less.most = c.most
		*c = less
	}
	return len(c.out) <= c.most
}
