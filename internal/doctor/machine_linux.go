package doctor

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/handsel/handsel/internal/confine"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
	"golang.org/x/sys/unix"
)

// watches says how many inotify instances the user may have, and has: each
// process that waits in line takes one, and polls when there is none left.
func watches() []Finding {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_instances")
	if err != nil {
		return nil
	}
	most, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	used := inotifyInUse()
	f := finding(OK, "limit_inotify", "inotify instances: %d in use of %d", used, most)
	if most > 0 && used >= most*9/10 {
		f.Level = Warn
		f.Text += "; beyond that, those who wait look every few seconds instead of being woken"
		f = f.help("sysctl fs.inotify.max_user_instances=%d", 8*most)
	}
	return []Finding{f}
}

// inotifyInUse counts the instances of this user's processes, as far as they
// can be looked at.
func inotifyInUse() (n int) {
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	uid := uint32(os.Geteuid())
	owned := map[string]bool{}
	for _, link := range links {
		dir := filepath.Dir(link)
		own, known := owned[dir]
		if !known {
			var st unix.Stat_t
			own = unix.Stat(filepath.Dir(dir), &st) == nil && st.Uid == uid
			owned[dir] = own
		}
		if own {
			if target, err := os.Readlink(link); err == nil && target == "anon_inode:inotify" {
				n++
			}
		}
	}
	return n
}

// kernel says which of the features that we build on are there.
func kernel(World) []Finding {
	can := proc.Can()
	var uts unix.Utsname
	_ = unix.Uname(&uts)
	out := []Finding{finding(OK, "kernel", "Linux %s", unix.ByteSliceToString(uts.Release[:]))}
	add := func(have bool, code, yes, no string) {
		f := finding(OK, code, "%s", yes)
		if !have {
			f = finding(Note, code, "%s", no)
		}
		out = append(out, f)
	}
	add(can.Pidfd, "pidfd", "pidfd: signals go to a process, never to a number",
		"no pidfd: a signal goes to a number that was checked a moment before, and ends are found by looking")
	add(can.PidfdGroup, "pidfd_group", "pidfd for process groups (PIDFD_SIGNAL_PROCESS_GROUP)",
		"no pidfd for process groups (Linux 6.9 has it): a group is signalled by its number while its leader is kept")
	add(can.Subreaper, "subreaper", "subreaper: what leaves an agent's group and session is found",
		"no subreaper: what leaves an agent's group and session is found by HANDSEL_RUN only")
	add(inotifyWorks(), "inotify", "inotify: waiters are woken by events", "no inotify: waiters look every few seconds")
	_, psi := machine.Source("psi_memory", "/proc/pressure/memory")
	add(psi == nil, "psi", "pressure stall information (PSI)", "no pressure stall information (PSI): admission cannot see memory pressure")
	abi, err := confine.Supported()
	f := finding(OK, "landlock", "Landlock, version %d: --confine os", abi)
	if err != nil {
		f = finding(Note, "landlock", "%v", err)
	}
	out = append(out, f)
	add(cgroup2() != "", "cgroup2", "cgroup v2 at "+cgroup2(), "no cgroup v2")
	return out
}

func inotifyWorks() bool {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// cgroup2 is where the unified hierarchy is mounted.
func cgroup2() string {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(table)) {
		left, right, ok := strings.Cut(line, " - ")
		fields := strings.Fields(left)
		if ok && len(fields) > 4 && strings.HasPrefix(right, "cgroup2 ") {
			return fields[4]
		}
	}
	return ""
}
