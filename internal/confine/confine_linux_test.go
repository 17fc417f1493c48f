package confine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/proc"
)

func TestMain(m *testing.M) {
	if os.Getenv("HANDSEL_TEST_STUB") == "probe" {
		probe(os.Args[1], os.Args[2])
		os.Exit(0)
	}
	if _, err := Supported(); err != nil {
		fmt.Println("these tests need it, and nothing here may be skipped:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// attempts are the ways to write, each in a directory that holds the files
// "kept" and "old" and the directory "sub". Each undoes nothing.
var attempts = []struct {
	name string
	try  func(dir string) error
}{
	{"create", func(d string) error { return open(d+"/new", unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL) }},
	{"overwrite", func(d string) error { return open(d+"/kept", unix.O_WRONLY) }},
	{"append", func(d string) error { return open(d+"/kept", unix.O_WRONLY|unix.O_APPEND) }},
	{"open and truncate", func(d string) error { return open(d+"/kept", unix.O_RDONLY|unix.O_TRUNC) }},
	{"truncate", func(d string) error { return unix.Truncate(d+"/kept", 0) }},
	{"rename", func(d string) error { return unix.Rename(d+"/kept", d+"/renamed") }},
	{"rename over", func(d string) error { return unix.Rename(d+"/old", d+"/kept") }},
	{"exchange", func(d string) error {
		return unix.Renameat2(unix.AT_FDCWD, d+"/kept", unix.AT_FDCWD, d+"/sub", unix.RENAME_EXCHANGE)
	}},
	{"link", func(d string) error { return unix.Link(d+"/kept", d+"/linked") }},
	{"symlink", func(d string) error { return unix.Symlink("kept", d+"/sym") }},
	{"mkdir", func(d string) error { return unix.Mkdir(d+"/made", 0o700) }},
	{"rmdir", func(d string) error { return unix.Rmdir(d + "/sub") }},
	{"unlink", func(d string) error { return unix.Unlink(d + "/kept") }},
	{"fifo", func(d string) error { return unix.Mkfifo(d+"/fifo", 0o600) }},
	{"socket", func(d string) error { return unix.Mknod(d+"/sock", unix.S_IFSOCK|0o600, 0) }},
	{"unnamed file", func(d string) error { return open(d, unix.O_WRONLY|unix.O_TMPFILE) }},
}

func open(path string, flags int) error {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0o600)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// probe makes every attempt in a fresh copy of the material below each of the
// two directories, and prints what came of it. The copies were made before: a
// probe that is confined could not make them.
func probe(inside, outside string) {
	for _, a := range attempts {
		for _, place := range []string{inside, outside} {
			fmt.Printf("%s %s: %v\n", filepath.Base(place), a.name, a.try(filepath.Join(place, a.name)))
		}
	}
	// What would carry something from one to the other.
	fmt.Printf("move out: %v\n", unix.Rename(inside+"/cargo", outside+"/cargo"))
	fmt.Printf("move in: %v\n", unix.Rename(outside+"/cargo", inside+"/stolen"))
	fmt.Printf("link in: %v\n", unix.Link(outside+"/cargo", inside+"/alias"))
	_ = unix.Symlink(outside+"/cargo", inside+"/way")
	fmt.Printf("through a symlink: %v\n", open(inside+"/way", unix.O_WRONLY))
	fmt.Printf("through our own descriptor: %v\n", reopen(outside+"/cargo"))
	fmt.Printf("move inside: %v\n", unix.Rename(inside+"/cargo", inside+"/rename/sub/cargo"))
	fmt.Printf("read: %v\n", open(outside+"/cargo", unix.O_RDONLY))
	fmt.Printf("mount: %v\n", unix.Mount("", inside, "", unix.MS_PRIVATE, "")) // no mount point, so root without confinement gets EINVAL
	for _, device := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/ptmx"} {
		fmt.Printf("%s: %v\n", device, open(device, unix.O_RDWR))
	}
}

// reopen opens path for reading and through that descriptor for writing.
func reopen(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_WRONLY)
}

// material fills dir with what probe needs.
func material(t *testing.T, dir string) {
	t.Helper()
	for _, a := range attempts {
		must(t, os.MkdirAll(filepath.Join(dir, a.name, "sub"), 0o700))
		for _, name := range []string{"kept", "old"} {
			must(t, os.WriteFile(filepath.Join(dir, a.name, name), []byte(name), 0o600))
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "cargo"), []byte("cargo"), 0o600))
}

// spread lists what lies below dir, contents included.
func spread(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	must(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			fmt.Fprintln(&b, path, err)
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintln(&b, path, string(text), err)
		return nil
	}))
	return b.String()
}

// confined starts argv under rules and returns what it printed.
func confined(t *testing.T, r Rules, env []string, argv ...string) string {
	t.Helper()
	set, err := r.Ruleset()
	must(t, err)
	defer set.Close()
	return started(t, set, env, argv...)
}

func started(t *testing.T, by proc.Confinement, env []string, argv ...string) string {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	c, err := proc.Start(proc.Spec{
		Argv: argv, Env: append(os.Environ(), env...), Stdout: w, Stderr: w, Session: proc.Own, Confine: by,
	})
	w.Close()
	must(t, err)
	text, err := io.ReadAll(r)
	must(t, err)
	c.Reap()
	return string(text)
}

var asProbe = []string{"HANDSEL_TEST_STUB=probe"}

// TestWritingStopsAtTheDirectory: E6 at the kernel, each way to write, and that
// it is the confinement that stops it.
func TestWritingStopsAtTheDirectory(t *testing.T) {
	inside, outside := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	material(t, inside)
	material(t, outside)
	before := spread(t, outside)
	got := confined(t, Rules{Dirs: []string{inside}}, asProbe, os.Args[0], inside, outside)

	for _, a := range attempts {
		if want := "in " + a.name + ": <nil>\n"; !strings.Contains(got, want) {
			t.Errorf("want %q", want)
		}
		if want := "out " + a.name + ": permission denied\n"; !strings.Contains(got, want) {
			t.Errorf("want %q", want)
		}
	}
	for _, want := range []string{
		"move out: permission denied", "move in: permission denied", "link in: invalid cross-device link",
		"through a symlink: permission denied", "through our own descriptor: permission denied",
		"move inside: <nil>", "read: <nil>", "mount: operation not permitted",
		"/dev/null: <nil>", "/dev/zero: <nil>", "/dev/full: <nil>", "/dev/ptmx: <nil>",
	} {
		if !strings.Contains(got, want+"\n") {
			t.Errorf("want %q", want)
		}
	}
	if after := spread(t, outside); after != before {
		t.Errorf("outside changed from\n%s to\n%s", before, after)
	}
	if t.Failed() {
		t.Log(got)
	}

	free := started(t, nil, asProbe, os.Args[0], outside, filepath.Join(t.TempDir(), "nothing"))
	for _, a := range attempts {
		if want := "out " + a.name + ": <nil>\n"; !strings.Contains(free, want) {
			t.Errorf("without confinement: want %q in\n%s", want, free)
		}
	}
}

// TestNobodyBelowGetsOut: children, sessions of their own, and orphans.
func TestNobodyBelowGetsOut(t *testing.T) {
	inside, outside := t.TempDir(), t.TempDir()
	script := `cd "$1"; exec 3<>fifo
sh -c 'echo x >"$1/child"' sh "$2"
setsid -w sh -c 'echo x >"$1/session"' sh "$2"
(setsid sh -c 'echo x >"$1/orphan"; echo x >orphan; echo over >&3' sh "$2" &)
read over <&3
echo x >own`
	must(t, unix.Mkfifo(filepath.Join(inside, "fifo"), 0o600))
	got := confined(t, Rules{Dirs: []string{inside}}, nil, "/bin/sh", "-c", script, "sh", inside, outside)
	if n := strings.Count(got, "ermission denied"); n != 3 {
		t.Errorf("%d refusals, want 3: %s", n, got)
	}
	if names, err := os.ReadDir(outside); err != nil || len(names) > 0 {
		t.Errorf("outside: %v, %v", names, err)
	}
	for _, name := range []string{"own", "orphan"} {
		if _, err := os.Stat(filepath.Join(inside, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestSingleFilesAreFilledAndNotReplaced: a login, a lock file.
func TestSingleFilesAreFilledAndNotReplaced(t *testing.T) {
	inside, outside := t.TempDir(), t.TempDir()
	file := filepath.Join(outside, "login")
	must(t, os.WriteFile(file, []byte("old"), 0o600))
	got := confined(t, Rules{Dirs: []string{inside}, Files: []string{file}}, nil, "/bin/sh", "-c",
		`echo new >"$1/login"; rm -f "$1/login"; echo x >"$1/other"; mv "$1/login" "$2"`, "sh", outside, inside)
	if n := strings.Count(got, "ermission denied"); n != 3 {
		t.Errorf("%d refusals, want 3: %s", n, got)
	}
	if got := spread(t, outside); got != outside+" <nil>\n"+file+" new\n <nil>\n" {
		t.Errorf("outside: %s", got)
	}
}

// TestTerminalsWork: a pseudo-terminal made inside, /dev/tty, and the modes of
// the terminal that was handed over.
func TestTerminalsWork(t *testing.T) {
	inside := t.TempDir()
	set, err := Rules{Dirs: []string{inside}}.Ruleset()
	must(t, err)
	defer set.Close()
	master, slave, err := pty.Open()
	must(t, err)
	defer master.Close()
	c, err := proc.Start(proc.Spec{
		Argv: []string{"/bin/sh", "-c", `stty -echo && echo to-tty >/dev/tty && stty -F /dev/tty echo && script -qec 'stty -echo; echo in-script; tty' /dev/null`},
		Env:  os.Environ(), Dir: inside, Stdin: slave, Stdout: slave, Stderr: slave, Session: proc.Own, HasTerminal: true, Confine: set,
	})
	must(t, err)
	c.Reap()
	slave.Close()
	got, _ := io.ReadAll(master) // EIO says that nobody has the other end
	for _, want := range []string{"to-tty", "in-script", "/dev/pts/"} {
		if !strings.Contains(string(got), want) {
			t.Errorf("want %q in %q", want, got)
		}
	}
	if st := c.Status(); st.Code != 0 {
		t.Errorf("status %d: %s", st.Code, got)
	}
}

// TestScopedProcessesReachNobodyOutside: signals and abstract sockets, where the
// kernel can; and we still end it.
func TestScopedProcessesReachNobodyOutside(t *testing.T) {
	abi, err := Supported()
	must(t, err)
	if abi < ScopedFrom {
		t.Logf("version %d scopes nothing, which the reference says", abi)
		return
	}
	bystander := exec.Command("sleep", "600")
	must(t, bystander.Start())
	defer func() { _ = bystander.Process.Kill(); _ = bystander.Wait() }()
	name := "@handsel-confine-" + strconv.Itoa(os.Getpid())
	listener, err := net.Listen("unix", name)
	must(t, err)
	defer listener.Close()

	inside := t.TempDir()
	got := confined(t, Rules{Dirs: []string{inside}}, nil, "/bin/sh", "-c",
		`kill -0 $1 && echo reached-it; kill -0 $PPID && echo reached-us; sleep 600 & kill $! && echo reached-own`,
		"sh", strconv.Itoa(bystander.Process.Pid))
	if strings.Contains(got, "reached-it") || strings.Contains(got, "reached-us") || !strings.Contains(got, "reached-own") {
		t.Errorf("signals: %s", got)
	}

	set, err := Rules{Dirs: []string{inside}}.Ruleset()
	must(t, err)
	defer set.Close()
	c, err := proc.Start(proc.Spec{Argv: []string{"/bin/sleep", "600"}, Session: proc.Own, Confine: set})
	must(t, err)
	must(t, c.SignalGroup(syscall.SIGTERM))
	c.Reap()
	if c.Status().Signal != syscall.SIGTERM {
		t.Errorf("ended by %v", c.Status())
	}

	dial := func() (err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // never unlocked: this thread ends here
			if err = set.Enter(); err == nil {
				err = dialAbstract(name)
			}
		}()
		<-done
		return err
	}
	if err := dial(); !errors.Is(err, unix.EPERM) {
		t.Errorf("abstract socket of outside: %v", err)
	}
	if err := dialAbstract(name); err != nil {
		t.Errorf("unconfined: %v", err)
	}
}

func dialAbstract(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: name})
}

// TestPortsAreNarrowed: confine_ports, in the one way that is promised.
func TestPortsAreNarrowed(t *testing.T) {
	allowed, refused := listen(t), listen(t)
	for _, tt := range []struct {
		name  string
		ports []uint16
		want  string
	}{
		{"not narrowed", nil, "one two "},
		{"one port", []uint16{allowed}, "one "},
		{"none", []uint16{}, ""},
	} {
		got := confined(t, Rules{Dirs: []string{t.TempDir()}, Ports: tt.ports}, nil, "bash", "-c",
			`for at in one:$1 two:$2; do (: </dev/tcp/127.0.0.1/${at#*:}) 2>/dev/null && printf '%s ' ${at%:*}; done; true`,
			"bash", strconv.Itoa(int(allowed)), strconv.Itoa(int(refused)))
		if got != tt.want {
			t.Errorf("%s: reached %q, want %q", tt.name, got, tt.want)
		}
	}
}

func listen(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// TestOtherMemoryIsOutOfReach: /proc/PID/mem of a process outside, for writing
// and for reading, and the files it has open.
func TestOtherMemoryIsOutOfReach(t *testing.T) {
	got := confined(t, Rules{Dirs: []string{t.TempDir()}}, nil, "/bin/sh", "-c",
		`(: >/proc/$PPID/mem); cat /proc/$PPID/mem; readlink -v /proc/$PPID/fd/1`)
	if n := strings.Count(got, "ermission denied"); n != 3 {
		t.Errorf("%d refusals, want 3: %s", n, got)
	}
}

// TestWeStayUnconfined: the caller, its threads and its later children write
// wherever they did.
func TestWeStayUnconfined(t *testing.T) {
	inside, outside := t.TempDir(), t.TempDir()
	for i := range 50 {
		confined(t, Rules{Dirs: []string{inside}}, nil, "/bin/true")
		must(t, os.WriteFile(filepath.Join(outside, strconv.Itoa(i)), nil, 0o600))
	}
	if got := started(t, nil, nil, "/bin/sh", "-c", `echo x >"$1/child"`, "sh", outside); got != "" {
		t.Error(got)
	}
}

// TestMissingPlacesAreRefused: strict, so what cannot be promised is not made.
func TestMissingPlacesAreRefused(t *testing.T) {
	before := descriptors(t)
	for _, r := range []Rules{
		{Dirs: []string{filepath.Join(t.TempDir(), "gone")}},
		{Files: []string{filepath.Join(t.TempDir(), "gone")}},
	} {
		if set, err := r.Ruleset(); err == nil {
			set.Close()
			t.Errorf("%+v was accepted", r)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, had %d", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(names)
}

// TestOldKernelsAreRefused: never weaker than asked.
func TestOldKernelsAreRefused(t *testing.T) {
	defer func(f func() (int, error)) { askABI = f }(askABI)
	for _, tt := range []struct {
		name  string
		abi   int
		err   error
		ports []uint16
		want  string
	}{
		{"none", -1, unix.ENOSYS, nil, "it has no Landlock"},
		{"off", -1, unix.EOPNOTSUPP, nil, "not switched on"},
		{"truncation not stopped", 2, nil, nil, "version 2"},
		{"no ports", 3, nil, []uint16{443}, "first that narrows ports"},
	} {
		askABI = func() (int, error) { return tt.abi, tt.err }
		_, err := Rules{Dirs: []string{t.TempDir()}, Ports: tt.ports}.Ruleset()
		var no *Unsupported
		if !errors.As(err, &no) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	for abi, stopped := range map[int]string{3: "truncate", 5: "ioctl_dev", 6: "Scoped: all"} {
		if got := handled(abi, false).String(); !strings.Contains(got, stopped) {
			t.Errorf("version %d handles %s, want %s in it", abi, got, stopped)
		}
	}
}

// TestEveryWritingRightOfTheLibraryIsHandled: a right that a later library knows
// must be looked at before it is left free.
func TestEveryWritingRightOfTheLibraryIsHandled(t *testing.T) {
	abi, err := Supported()
	must(t, err)
	rights := slices.Collect(strings.SplitSeq(strings.Trim(handled(abi, false).HandledAccessFS.String(), "{}"), ","))
	slices.Sort(rights)
	want := []string{"ioctl_dev", "make_block", "make_char", "make_dir", "make_fifo", "make_reg", "make_sock", "make_sym", "refer", "remove_dir", "remove_file", "truncate", "write_file"}
	if abi < ioctlFrom {
		want = want[1:]
	}
	if !slices.Equal(rights, want) {
		t.Errorf("handled %q, want %q", rights, want)
	}
}

// TestResolveRefusesWhatWouldBeEmpty: directories in which the promise is false.
func TestResolveRefusesWhatWouldBeEmpty(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	for _, dir := range []string{"me/work/project/sub", "me/state/runs", "elsewhere"} {
		must(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
	}
	must(t, os.Symlink(filepath.Join(root, "me"), filepath.Join(root, "alias")))
	must(t, os.Symlink(filepath.Join(root, "me/work/project"), filepath.Join(root, "short")))
	places := []Place{
		{Path: filepath.Join(root, "alias"), Name: "your home directory", Around: true},
		{Path: filepath.Join(root, "me/state"), Name: "handsel's own directory"},
		{Path: filepath.Join(root, "me/.engine/not-there-yet"), Name: "the login of claude"},
		{Path: "", Name: "nothing"},
	}
	for _, tt := range []struct{ dir, want, why string }{
		{"me/work/project", "me/work/project", ""},
		{"short", "me/work/project", ""},
		{"elsewhere", "elsewhere", ""},
		{"me", "", "it holds your home directory"},
		{"alias", "", "it holds your home directory"},
		{".", "", "it holds your home directory"},
		{"me/state", "", "handsel's own directory"},
		{"me/state/runs", "", "it is part of handsel's own directory"},
	} {
		got, err := Resolve(filepath.Join(root, tt.dir), places)
		var no *Boundless
		switch {
		case tt.why == "" && (err != nil || got != filepath.Join(root, tt.want)):
			t.Errorf("%s: %q, %v", tt.dir, got, err)
		case tt.why != "" && (!errors.As(err, &no) || !strings.Contains(err.Error(), tt.why)):
			t.Errorf("%s: %q, %v; want %q", tt.dir, got, err, tt.why)
		}
	}
	if _, err := Resolve("/", nil); !errors.As(err, new(*Boundless)) {
		t.Errorf("/: %v", err)
	}
	must(t, os.MkdirAll(filepath.Join(root, "me/.engine"), 0o700))
	if _, err := Resolve(filepath.Join(root, "me/.engine"), places); !errors.As(err, new(*Boundless)) {
		t.Errorf("the directory of what is not there yet: %v", err)
	}
	if strings.Contains((&Boundless{"a\nb", "c"}).Error(), "\n") {
		t.Error("a name breaks the line")
	}
}
