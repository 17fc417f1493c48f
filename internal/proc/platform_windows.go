package proc

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Windows starts a process and waits for it, no more: no caps are kept there,
// descendants are not followed, and ending means ending the process itself.

// Child is a process started by Start.
type Child struct {
	Pid     int
	Path    string
	Session Session

	process *os.Process
	exited  chan struct{}
	status  Status
}

// Terminal is never handed over on Windows.
type Terminal struct{}

// Start starts spec. A returned error is a *StartError.
func Start(spec Spec) (*Child, error) {
	if err := CheckDir(spec.Dir); err != nil {
		return nil, err
	}
	if len(spec.Argv) == 0 {
		return nil, &StartError{Kind: NotFound, Detail: "the command is empty", Err: syscall.ENOENT}
	}
	path, err := LookPath(spec.Argv[0], spec.Env, spec.Dir)
	if err != nil {
		return nil, err
	}
	if len(spec.Keep) > 0 {
		return nil, &StartError{Kind: BadSpec, Path: path, Detail: "descriptors are not kept on Windows", Err: errors.ErrUnsupported}
	}
	if spec.Confine != nil {
		return nil, &StartError{Kind: NotConfined, Path: path, Detail: "nothing confines a process on Windows", Err: errors.ErrUnsupported}
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, &StartError{Kind: NoDescriptors, Path: os.DevNull, Detail: err.Error(), Err: err}
	}
	defer null.Close()
	files := []*os.File{spec.Stdin, spec.Stdout, spec.Stderr}
	for i := range files {
		if files[i] == nil {
			files[i] = null
		}
	}
	p, err := os.StartProcess(path, spec.Argv, &os.ProcAttr{Dir: spec.Dir, Env: spec.Env, Files: files})
	if err != nil {
		return nil, &StartError{Kind: NotExecutable, Path: path, Detail: errno(err).Error(), Err: err}
	}
	c := &Child{Pid: p.Pid, Path: path, process: p, exited: make(chan struct{})}
	go c.watch()
	return c, nil
}

func (c *Child) watch() {
	defer close(c.exited)
	state, err := c.process.Wait()
	if err != nil {
		c.status = Status{Lost: true}
		return
	}
	c.status = Status{Code: state.ExitCode()}
}

// Exited is closed when the child has ended.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Stops delivers nothing: there are no stops here.
func (c *Child) Stops() <-chan syscall.Signal { return nil }

// Status is how the child ended, once Exited is closed.
func (c *Child) Status() Status {
	if !c.Ended() {
		return Status{}
	}
	return c.status
}

// Ended tells whether the child has ended.
func (c *Child) Ended() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// Reap waits for the end.
func (c *Child) Reap() { <-c.exited }

// Abandon gives up on the child.
func (c *Child) Abandon() {}

// Signal ends the child; Windows knows no other signal.
func (c *Child) Signal(syscall.Signal) error {
	if c.Ended() {
		return ErrGone
	}
	return c.process.Kill()
}

// SignalGroup is Signal: there are no groups.
func (c *Child) SignalGroup(sig syscall.Signal) error { return c.Signal(sig) }

// End ends the child itself.
func (e Ending) End() (Report, error) {
	if !e.Child.Ended() {
		_ = e.Child.process.Kill()
	}
	select {
	case <-e.Child.exited:
		return Report{LeaderGone: true}, nil
	case <-time.After(orGrace(e.Kill)):
		return Report{Survivors: []Survivor{{Pid: e.Child.Pid, Why: "did not end"}}}, nil
	}
}

// EndOrphan cannot prove anything on Windows.
func EndOrphan(Orphan) (Report, error) { return Report{}, ErrUnverifiable }

// LookPath finds a program as os/exec does.
func LookPath(name string, _ []string, _ string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case errors.Is(err, exec.ErrDot):
		return "", &StartError{Kind: NotExecutable, Path: name, Detail: "PATH leads to a file in the working directory", Err: err}
	case err != nil:
		return "", &StartError{Kind: NotFound, Path: name, Detail: "not found on PATH", Err: err}
	}
	return filepath.Clean(path), nil
}

func searchable(string) error { return nil }

// HasControllingTerminal is never so in the sense that matters here.
func HasControllingTerminal() bool { return false }

// OwnTerminal never hands over.
func OwnTerminal(_, _, _ *os.File) *Terminal { return nil }

func (*Terminal) Foreground() bool { return false }
func (*Terminal) Give(int) error   { return errors.ErrUnsupported }
func (*Terminal) Take() error      { return nil }
func (*Terminal) KeepModes()       {}
func (*Terminal) RestoreModes()    {}
func (*Terminal) HasIt() bool      { return false }

// OnHangup never calls gone.
func (*Terminal) OnHangup(func()) (stop func()) { return func() {} }

// StopSelf does nothing.
func StopSelf() {}

// SetSubreaper says that Windows has none.
func SetSubreaper() error { return errors.ErrUnsupported }

// IsSubreaper is never so here.
func IsSubreaper() bool { return false }

// ReapAdopted has nothing to do.
func ReapAdopted() {}

// KeepReaping has nothing to do.
func KeepReaping() (stop func()) { return func() {} }

// CloseOnExecFrom has nothing to do: handles are inherited only by name.
func CloseOnExecFrom(int) error { return nil }

// DieBy returns at once: the caller exits with a number.
func DieBy(syscall.Signal) {}

// EndSignals lists the signals that end a run.
func EndSignals() []syscall.Signal { return []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} }

// Can says that nothing is promised here.
func Can() Capabilities { return Capabilities{} }

// Inherited is never so: handles are inherited only by name.
func Inherited(int) bool { return false }
