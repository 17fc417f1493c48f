//go:build unix

package doctor

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// enoughFiles is what a supervisor with many pools and a long line needs with
// room to spare.
const enoughFiles = 256

// ownership is owner and mode of a path, for people.
func ownership(path string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return "owner unknown"
	}
	return fmt.Sprintf("owner uid %d, mode %04o", st.Uid, uint32(st.Mode)&0o7777)
}

func limits(World) (out []Finding) {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil {
		f := finding(OK, "limit_files", "open files: %s at most (hard limit %s)", amount(files.Cur), amount(files.Max))
		if files.Cur < enoughFiles {
			f.Level = Warn
			f = f.help("ulimit -n %d", enoughFiles)
		}
		out = append(out, f)
	}
	var procs unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NPROC, &procs) == nil {
		out = append(out, finding(OK, "limit_processes", "processes of uid %d: %s at most", os.Getuid(), amount(procs.Cur)))
	}
	return append(out, watches()...)
}

func amount(n uint64) string {
	if n >= 1<<62 {
		return "no limit"
	}
	return fmt.Sprint(n)
}
