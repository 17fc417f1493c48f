package proc

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Session says where a child stands towards our session and terminal (S20).
type Session int

const (
	// Shared leaves the child in our process group, as env(1) would. Its group
	// is then never signalled: we are in it.
	Shared Session = iota
	// Own gives the child a session of its own: pid, group and session agree
	// before its first instruction.
	Own
	// Foreground gives the child a group of its own in our session and makes
	// that the foreground group of Spec.Terminal.
	Foreground
)

// Spec is one process to start. Nothing is added to it: what the child sees is
// what stands here.
type Spec struct {
	Argv []string // Argv[0] is looked up on the PATH of Env, as env(1) does
	Dir  string   // working directory; "" = ours
	Env  []string // handed over as it is, in this order

	// Stdin, Stdout and Stderr are handed over untouched; nil is the null device.
	Stdin, Stdout, Stderr *os.File
	// Keep names descriptors of ours (3 and above) that the child gets under
	// the same numbers. It sees no others, provided that every other one is
	// close-on-exec (CloseOnExecFrom).
	Keep []int

	Session  Session
	Terminal *Terminal // Foreground only: the terminal that is handed over
	// OwnTerminal, with Own, makes this standard descriptor (0, 1 or 2), a
	// terminal, the controlling one of the new session. 0 and no terminal
	// there means none: see HasTerminal.
	OwnTerminal int
	HasTerminal bool

	Run string // the run's id (HANDSEL_RUN), by which concurrent runs in one process are told apart

	// Confine restricts the child before its first instruction; nil does not.
	Confine Confinement
}

// Confinement is what a child is put under. Enter restricts the calling thread
// alone, for good and for all that is forked on it; that thread forks the child
// and then ends.
type Confinement interface{ Enter() error }

// Status is how a child ended.
type Status struct {
	Code   int            // exit status; 0 when Signal is set
	Signal syscall.Signal // 0 = it exited
	Core   bool           // a core was dumped
	Lost   bool           // somebody else collected the status, so nothing is known of it
}

// StartKind says why a start did not happen. Callers branch on it: each kind
// stands for one exit status.
type StartKind int

const (
	NotFound      StartKind = iota // no such program: 127
	NotExecutable                  // permission, a directory, a missing interpreter: 126
	WrongFormat                    // not a program for this machine: 126
	Busy                           // open for writing elsewhere (ETXTBSY), also after retries: 126
	TooBig                         // arguments and environment exceed the kernel's limit: 126
	NoDir                          // the working directory is missing or cannot be entered: 125
	NoProcess                      // the kernel forks no more (EAGAIN, ENOMEM): 125
	NoDescriptors                  // too many open files: 75
	BadSpec                        // an argument with a NUL byte, a closed descriptor: 125
	NotConfined                    // the confinement could not be put on: 125
)

// StartError reports that no process was started, and why.
type StartError struct {
	Kind   StartKind
	Path   string // what could not be started, or the directory for NoDir
	Detail string // in words, without Path
	Err    error  // the errno, where there is one
}

func (e *StartError) Error() string {
	if e.Kind == NoDir {
		return fmt.Sprintf("working directory %q: %s", e.Path, e.Detail)
	}
	return fmt.Sprintf("start %q: %s", e.Path, e.Detail)
}

func (e *StartError) Unwrap() error { return e.Err }

// CheckDir tells whether dir can be entered, so that a missing directory is
// never taken for a missing program. "" (stay where we are) is always right.
func CheckDir(dir string) error {
	if dir == "" {
		return nil
	}
	bad := func(detail string, err error) error {
		return &StartError{Kind: NoDir, Path: dir, Detail: detail, Err: err}
	}
	st, err := os.Stat(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return bad("it does not exist", errno(err))
	case err != nil:
		return bad(errno(err).Error(), errno(err))
	case !st.IsDir():
		return bad("it is not a directory", syscall.ENOTDIR)
	}
	if err := searchable(dir); err != nil {
		return bad(err.Error(), err)
	}
	return nil
}

// errno is the system's error inside err, without the path that os adds.
func errno(err error) error {
	var no syscall.Errno
	if errors.As(err, &no) {
		return no
	}
	return err
}

// firstEnv is the value of name in env; as for getenv(3), the first entry counts.
func firstEnv(env []string, name string) (string, bool) {
	for _, entry := range env {
		if key, value, ok := strings.Cut(entry, "="); ok && key == name {
			return value, true
		}
	}
	return "", false
}
