package api

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/handsel/handsel/internal/flock"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/proc"
	"github.com/handsel/handsel/internal/record"
)

// The dispatcher's files in the home.
const (
	LockFile = "dispatch.lock" // locked as long as a dispatcher lives
	SelfFile = "dispatch.json" // who it is; touched as its heartbeat
)

// Dispatcher is who the dispatcher said it is.
type Dispatcher struct {
	V       int         `json:"v"`
	Pid     int         `json:"pid"`
	Ticks   uint64      `json:"start_ticks"`
	BootID  string      `json:"boot_id"`
	Started record.Time `json:"started"`
	Version string      `json:"version"`
	Mode    string      `json:"mode"`
}

// Claim is the process that the file names.
func (d *Dispatcher) Claim() proc.Claim {
	return proc.Claim{Pid: d.Pid, Ticks: d.Ticks, Boot: d.BootID}
}

// doing says what keeps a dispatcher from answering, as far as it shows.
func (d *Dispatcher) doing() string {
	st, err := proc.ReadStat(d.Pid)
	switch {
	case err != nil, d.Ticks != 0 && st.Ticks != d.Ticks:
		return ""
	case st.Stopped():
		return "it is stopped"
	}
	return ""
}

// ReadDispatcher reads who the last dispatcher of a home was. It may be gone:
// Judge tells. One that never ran is fs.ErrNotExist.
func ReadDispatcher(d home.Dir) (*Dispatcher, error) {
	folder, err := d.Open()
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	data, err := folder.ReadFile(SelfFile, 64<<10)
	if err != nil {
		return nil, err
	}
	who := new(Dispatcher)
	return who, json.Unmarshal(data, who)
}

const (
	judgeTries = 10
	judgeNap   = 3 * time.Millisecond
)

// Judge tells whether a dispatcher has the home, by its lock, and who it says
// it is (nil: not known). A lock just closed can read held for some 20 ms while
// a process forks, so one look is no proof.
func Judge(d home.Dir) (who *Dispatcher, held bool) {
	for range judgeTries {
		if held = locked(d); !held {
			return nil, false
		}
		time.Sleep(judgeNap)
	}
	if who, err := ReadDispatcher(d); err == nil && proc.Judge(who.Claim()) != proc.Gone {
		return who, true
	}
	return nil, true
}

func locked(d home.Dir) bool {
	dir, err := flock.OpenDir(d.Path)
	if err != nil {
		return false
	}
	defer dir.Close()
	f, err := dir.Open(LockFile, flock.Look)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(f.TryLock(), flock.ErrHeld)
}
