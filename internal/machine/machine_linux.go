package machine

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot reads CLOCK_BOOTTIME, which counts suspended time and never steps.
func SinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// PidNS is the inode number of this process's pid namespace, 0 if it cannot
// be read. A pid means something only to processes of the same number.
func PidNS() uint64 { return pidNS() }

var pidNS = sync.OnceValue(func() uint64 {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return 0
	}
	return st.Ino
})

func readBootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return trimmed(b)
}

// magics are the f_type numbers of statfs(2).
var magics = map[int64]string{
	0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x01021994: "tmpfs", 0x794C7630: "overlay",
	0x2FC12FC1: "zfs", 0xF2F52010: "f2fs", 0xCA451A4E: "bcachefs", 0x858458F6: "ramfs", 0x4D44: "vfat",
	0x2011BAB0: "exfat", 0x5346544E: "ntfs", 0x7366746E: "ntfs3", 0x3153464A: "jfs", 0x52654973: "reiserfs",
	0x73717368: "squashfs", 0xE0F5E1E2: "erofs", 0x61756673: "aufs", 0x6969: "nfs", 0xFF534D42: "cifs",
	0xFE534D42: "smb2", 0x517B: "smb", 0x01021997: "9p", 0x5346414F: "afs", 0x6B414653: "afs",
	0x73757245: "coda", 0x564C: "ncp", 0x00C36400: "ceph", 0x65735546: "fuse", 0x0BD00BD0: "lustre",
	0x01161970: "gfs2", 0x7461636F: "ocfs2", 0x47504653: "gpfs", 0x786F4256: "vboxsf", 0x6A656A63: "virtiofs",
}

func kind(path string) (FS, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return FS{}, err
	}
	name, known := magics[int64(st.Type)&0xffffffff]
	if !known {
		return FS{Name: fmt.Sprintf("0x%x", uint32(st.Type))}, nil
	}
	if name == "fuse" {
		// All of FUSE shares one magic number; the mount table has the subtype.
		if sub := fuseKind(path); sub != "" {
			name = sub
		}
	}
	return FS{Name: name, Network: networkNames[name], Known: true}, nil
}

// fuseKind finds the subtype (fuse.sshfs) of the mount that holds path.
func fuseKind(path string) string {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return ""
	}
	dev := strconv.Itoa(int(unix.Major(st.Dev))) + ":" + strconv.Itoa(int(unix.Minor(st.Dev)))
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(table) {
		left, right, ok := bytes.Cut(line, []byte(" - "))
		fields := bytes.Fields(left)
		if !ok || len(fields) < 3 || string(fields[2]) != dev {
			continue
		}
		if kinds := bytes.Fields(right); len(kinds) > 0 {
			return string(kinds[0])
		}
	}
	return ""
}
