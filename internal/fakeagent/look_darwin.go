package fakeagent

import "golang.org/x/sys/unix"

// zombie is SZOMB of <sys/proc.h>.
const zombie = 5

// Alive tells whether the process is still there: same pid, same start, and
// not a zombie.
func (p Process) Alive() bool {
	k, err := unix.SysctlKinfoProc("kern.proc.pid", p.Pid)
	if err != nil || int(k.Proc.P_pid) != p.Pid || k.Proc.P_stat == zombie {
		return false
	}
	return uint64(k.Proc.P_starttime.Sec)*1e6+uint64(k.Proc.P_starttime.Usec) == p.Ticks
}
