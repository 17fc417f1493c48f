//go:build unix

package dispatch

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// codeDescriptors is the reason of what is refused, or waits, for want of
// descriptors.
const codeDescriptors = "descriptor_limit"

// budget keeps account of descriptors: each waiting lane costs one for as long
// as it waits, and at the limit the kernel would drop a passed descriptor and
// accept(2) would fail. So enqueues are refused before the edge (G13).
type budget struct {
	limit   int
	reserve int // for connections, claims and the database
	callers int // of the reserve, what connections may take
	used    *atomic.Int64
	short   int // rows without their lane's lock; the loop's
}

// base is what a dispatcher has open when nothing waits.
const base = 40

// newBudget raises the soft limit to the hard one and keeps a quarter of a
// small limit back.
func newBudget() budget {
	b := budget{limit: 1 << 20, used: new(atomic.Int64)}
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) == nil {
		if l.Cur < l.Max {
			l.Cur = l.Max
			_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
			_ = unix.Getrlimit(unix.RLIMIT_NOFILE, &l)
		}
		b.limit = int(min(l.Cur, 1<<30))
	}
	b.callers = min(b.limit/4, 1024)
	b.reserve = base + b.callers
	return b
}

// conns is how many connections may be open at the handoff socket at once. Each
// can cost three: itself, its peer's pidfd and the lane it brings.
func (b *budget) conns() int { return max(b.callers/4, 4) }

// calls is how many may be open at the other socket. Each costs one.
func (b *budget) calls() int { return max(b.callers/4, 4) }

// take takes n, or says that there is no room for them.
func (b *budget) take(n int) error {
	if used := b.used.Add(int64(n)); used > int64(b.limit-b.reserve) {
		b.used.Add(int64(-n))
		return fmt.Errorf("the dispatcher holds %d lanes, and its limit of %d open files leaves no room for more (ulimit -n)", used-int64(n), b.limit)
	}
	return nil
}

// full tells whether there is room for none.
func (b *budget) full() bool { return b.used.Load() >= int64(b.limit-b.reserve) }

// force takes n from the reserve.
func (b *budget) force(n int) { b.used.Add(int64(n)) }

func (b *budget) give(n int) { b.used.Add(int64(-n)) }

// grow makes the descriptor table large enough for n more at once, so that it
// is not grown, and copied, many times on the way.
func (b *budget) grow(n int) {
	top := min(n+base, b.limit-1)
	if top <= 256 {
		return
	}
	if fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, top); err == nil {
		unix.Close(fd)
	}
}
