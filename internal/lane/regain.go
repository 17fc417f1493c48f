package lane

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/handsel/handsel/internal/flock"
)

// Regain takes a waiting lane again for whoever keeps its row, after a restart
// (L20). lanes is the open directory of lanes, which serves thousands of them.
// It looks once, and writes nothing: what the record says of the waiting lane
// still holds. The error is flock.ErrHeld when somebody has the lock, *Held when
// an agent outlived its supervisor.
func Regain(lanes *flock.Dir, name string) (*Hold, error) {
	f, err := flock.Take(lanes, FileName(name), flock.Own)
	if err != nil {
		return nil, fmt.Errorf("regain lane %s: %w", strconv.QuoteToASCII(name), err)
	}
	fence, err := regained(f, name)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("regain lane %s: %w", strconv.QuoteToASCII(name), err)
	}
	// No more of the record is kept in memory than outlives every owner.
	return &Hold{file: f, rec: Record{V: version, Lane: name, Fence: fence}}, nil
}

// regained judges what the file of a waiting lane says, and returns its fence.
func regained(f *flock.File, name string) (fence uint64, err error) {
	buf := texts.Get().(*[RecordSize]byte)
	defer texts.Put(buf)
	if n, err := f.Read(buf[:]); err == nil {
		if fence, ok := waits(buf[:n], name); ok {
			return fence, nil
		}
	}
	t := taking{name: name, began: time.Now()}
	rec, err := t.mayTake(f)
	if err == nil && rec != nil {
		fence = rec.Fence
	}
	return fence, err
}

// texts are buffers for records.
var texts = sync.Pool{New: func() any { return new([RecordSize]byte) }}

// waits reads the record of a lane that a dispatcher or a launcher has as encode
// writes it, which is what nearly all lanes have that are regained; false for any
// other, which is to be read in full. Such an owner has no agent, so the lane is
// free with its lock.
func waits(text []byte, name string) (fence uint64, ok bool) {
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		return 0, false // JSON writes it otherwise
	}
	rest, ok := bytes.CutPrefix(text, []byte(`{"v":`+strconv.Itoa(version)+`,"lane":"`+name+`",`))
	if number, granted := bytes.CutPrefix(rest, []byte(`"fence":`)); granted {
		number, rest, _ = bytes.Cut(number, []byte{','})
		fence, err := strconv.ParseUint(string(number), 10, 64)
		return fence, ok && err == nil && agentless(rest)
	}
	return 0, ok && agentless(rest)
}

// agentless tells whether what follows a record's name and fence is of an owner
// that starts nothing.
func agentless(rest []byte) bool {
	owned := bytes.HasPrefix(rest, []byte(`"role":"`+RoleDispatcher+`",`)) || bytes.HasPrefix(rest, []byte(`"role":"`+RoleLauncher+`",`))
	return owned && !bytes.Contains(rest, []byte(`"child":`)) && !bytes.Contains(rest, []byte(`"run":`))
}

// Agent judges the agent that the record names, whoever has the lock: a lock
// whose recorded owner is gone may be a leftover copy, and the agent lives on.
// It is Free when there is none, and else notes it in the record (S7).
func (s *Seen) Agent() State {
	if s.Record == nil {
		return Free
	}
	return s.unlocked(findRun)
}
