//go:build unix

package dispatch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/handsel/handsel/internal/proc"
)

// driver is a process that we started to claim an offer.
type driver struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended and is reaped
	err  error         // how it ended; read after gone
}

// tokenFD is the descriptor on which a driver finds its token. It is named in
// HANDSEL_TOKEN_FD, and nowhere else is the token to be seen (L13a).
const tokenFD = 3

// startDriver starts a driver in a session of its own, with nothing of ours
// open but its token.
func (d *Dispatcher) startDriver(command []string, id, token string) (*driver, error) {
	if len(command) == 0 {
		return nil, errors.New("no driver is configured")
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	defer w.Close()
	if _, err := w.WriteString(id + "\n" + token + "\n"); err != nil { // less than a pipe holds
		return nil, err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = d.cfg.Home.Path
	cmd.Env = append(append([]string{}, d.cfg.Env...), "HANDSEL_TOKEN_FD="+strconv.Itoa(tokenFD))
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	drv := &driver{cmd: cmd, gone: make(chan struct{})}
	pid, gone := proc.Identify(cmd.Process.Pid)
	d.aside(func() {
		if gone == nil { // else it has ended already
			waitEnd(d.life, pid.Claim())
		}
		if d.life.Err() == nil {
			drv.err = cmd.Wait()
			close(drv.gone)
		} // else it outlives us, and is nobody's child then
	})
	return drv, nil
}

// kill ends the driver, if it still runs; its number is its own until it is
// reaped, which os.Process sees to.
func (drv *driver) kill() { _ = drv.cmd.Process.Kill() }

// how says how a driver that is gone ended.
func (drv *driver) how() string {
	if drv.err == nil {
		return ""
	}
	return fmt.Sprintf(" (%v)", drv.err)
}
