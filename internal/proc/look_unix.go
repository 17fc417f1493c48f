//go:build unix

package proc

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath is what execvp(3) searches when the environment has no PATH.
const defaultPath = "/bin:/usr/bin"

// LookPath finds the program that execvp(3) would start for name in the
// environment env and the working directory dir. A name with a slash is taken
// as it is. A program found only because PATH holds a relative or empty
// element is refused, as os/exec does (exec.ErrDot): whoever can write to a
// working directory must not choose what runs.
//
// A shim of ours is passed over, wherever it lies, and one that is named by its
// path stands for what PATH has behind it: what is looked for is never the way
// back to us.
func LookPath(name string, env []string, dir string) (string, error) {
	if name == "" {
		return "", &StartError{Kind: NotFound, Path: name, Detail: "the command is empty", Err: unix.ENOENT}
	}
	if strings.Contains(name, "/") {
		err := runnable(name, dir)
		behind, ok := ShimOf(within(dir, name))
		if err != nil || !ok {
			return name, err
		}
		path, _, err := onPath(behind, env, dir)
		return path, err
	}
	path, renamed, err := onPath(name, env, dir)
	if renamed != "" { // found under a name that is not what it stands for
		path, _, err = onPath(renamed, env, dir)
	}
	return path, err
}

// onPath searches PATH for what is no shim. It ends at a shim that stands for
// another name, and returns that.
func onPath(name string, env []string, dir string) (path, renamed string, err error) {
	search, set := firstEnv(env, "PATH")
	if !set {
		search = defaultPath
	}
	var denied error
	shim := ""
	for _, d := range filepath.SplitList(search) {
		path := filepath.Join(d, name)
		if d == "" {
			path = name
		}
		err := runnable(path, dir)
		if err == nil {
			behind, ours := ShimOf(within(dir, path))
			if ours && behind != name {
				return "", behind, &StartError{Kind: NotFound, Path: name, Detail: "a shim of " + quoted(behind) + " leads to another shim", Err: unix.ENOENT}
			}
			if ours {
				shim = path
				continue
			}
		}
		switch {
		case err == nil && !filepath.IsAbs(path):
			return "", "", &StartError{Kind: NotExecutable, Path: name,
				Detail: "PATH leads to a file in the working directory; give it as ./" + name, Err: unix.EACCES}
		case err == nil:
			return path, "", nil
		case kindOf(err) != NotFound && denied == nil && exists(within(dir, path)):
			denied = err // as execvp: go on looking, and remember
		}
	}
	if denied != nil {
		return "", "", denied
	}
	detail := "not found on PATH"
	if shim != "" {
		detail += ", where only handsel's shim of it is: " + quoted(shim)
	}
	return "", "", &StartError{Kind: NotFound, Path: name, Detail: detail, Err: unix.ENOENT}
}

// exists is false as well where nobody may look: a closed directory on PATH is
// no reason to say that something in it was denied.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func kindOf(err error) StartKind {
	var start *StartError
	if errors.As(err, &start) {
		return start.Kind
	}
	return BadSpec
}

// runnable tells whether path (relative to dir) is a file we may execute.
func runnable(path, dir string) error {
	where := within(dir, path)
	st, err := os.Stat(where)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return &StartError{Kind: NotFound, Path: path, Detail: "no such file", Err: errno(err)}
	case err != nil:
		return &StartError{Kind: NotExecutable, Path: path, Detail: errno(err).Error(), Err: errno(err)}
	case st.IsDir():
		return &StartError{Kind: NotExecutable, Path: path, Detail: "it is a directory", Err: unix.EISDIR}
	}
	if err := unix.Faccessat(unix.AT_FDCWD, where, unix.X_OK, unix.AT_EACCESS); err != nil {
		return &StartError{Kind: NotExecutable, Path: path, Detail: "no permission to execute it", Err: err}
	}
	return nil
}

// within reads path as a process in dir would.
func within(dir, path string) string {
	if dir == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func searchable(dir string) error {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.X_OK, unix.AT_EACCESS)
}

// explain turns the error of fork and exec into what a person can act on. The
// kernel says ENOENT for a missing directory, program, interpreter and loader
// alike, so the file system is asked again.
func explain(err error, path, dir string) error {
	if known, ok := errors.AsType[*StartError](err); ok {
		return known
	}
	if gone := CheckDir(dir); gone != nil {
		return gone
	}
	kind, detail := NotExecutable, errno(err).Error()
	switch errno(err) {
	case unix.EAGAIN, unix.ENOMEM:
		kind, detail = NoProcess, "the system starts no more processes now: "+detail
	case unix.EMFILE, unix.ENFILE:
		kind = NoDescriptors
	case unix.E2BIG:
		kind, detail = TooBig, "arguments and environment are longer than the system takes"
	case unix.ETXTBSY:
		kind, detail = Busy, "it is still open for writing in another process"
	case unix.ENOEXEC:
		kind, detail = WrongFormat, formatOf(within(dir, path))
	case unix.EINVAL, unix.EBADF:
		kind = BadSpec
	case unix.ENOENT, unix.ENOTDIR, unix.EACCES:
		if why := runnable(path, dir); why != nil {
			return why
		}
		detail = interpreterTrouble(within(dir, path), detail)
	}
	return &StartError{Kind: kind, Path: path, Detail: detail, Err: errno(err)}
}

// interpreterTrouble names the interpreter of a script that exists while its
// start says that something does not.
func interpreterTrouble(path, otherwise string) string {
	head := headOf(path)
	if !strings.HasPrefix(head, "#!") {
		if strings.HasPrefix(head, "\x7fELF") {
			return "its program loader is missing: " + otherwise
		}
		return otherwise
	}
	line, _, _ := strings.Cut(head[2:], "\n")
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return "its #! line names no interpreter"
	}
	// A carriage return at the end of the line is part of the name for the kernel.
	if cr := strings.TrimSuffix(line, "\r"); cr != line {
		return "its #! line ends in a carriage return, so the interpreter " + quoted(strings.TrimSpace(line)) + " does not exist"
	}
	return "its interpreter " + quoted(fields[0]) + ": " + otherwise
}

func quoted(s string) string { return `"` + strings.ReplaceAll(s, "\r", `\r`) + `"` }

func formatOf(path string) string {
	switch head := headOf(path); {
	case head == "":
		return "it is empty"
	case strings.HasPrefix(head, "\x7fELF"):
		return "wrong format: a program for another kind of machine"
	default:
		return "wrong format: neither a program for this machine nor a script with a #! line"
	}
}

func headOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := f.Read(head)
	return string(head[:n])
}
