// Package machine reads what the machine says of itself: its clocks, its boot,
// its file systems.
//
// It is the one seam of clause C16: a test build (tag failpoint) lets
// HANDSEL_TEST_SYS name a directory whose files stand in for what the kernel
// would say. Release builds do not contain that code. Nothing here decides
// anything, and nothing is cached that can change while a process lives.
package machine

import (
	"strings"
	"sync"
	"time"
)

// FS is a kind of file system, as statfs(2) tells it.
type FS struct {
	Name    string // the usual name (ext4, nfs), or the magic number in hex
	Network bool   // locks on it do not reach, or outlive, this host's kernel
	Known   bool   // whether the kind was recognised at all
}

// Now is the wall clock. It may step either way at any moment, so it is used
// only for what must survive a reboot or be read by a person (C14).
func Now() time.Time {
	now := time.Now()
	if text, ok := seam("wall_offset"); ok {
		if d, err := time.ParseDuration(text); err == nil {
			// Round drops the monotonic reading, which a shifted clock must not keep.
			return now.Round(0).Add(d)
		}
	}
	return now
}

// BootID names this boot of the kernel. Two processes with the same boot id
// may compare CLOCK_BOOTTIME readings and process start ticks (C14). It is
// empty where the kernel does not tell.
func BootID() string {
	if text, ok := seam("boot_id"); ok {
		return text
	}
	return bootID()
}

var bootID = sync.OnceValue(readBootID)

// Kind tells which kind of file system holds path. The error is that of
// statfs(2).
func Kind(path string) (FS, error) {
	if text, ok := seam("fs_kind"); ok {
		return FS{Name: text, Network: networkNames[text], Known: true}, nil
	}
	return kind(path)
}

// networkNames are the kinds refused by name: their locks are another host's
// business (product.md "On disk", case C087).
var networkNames = map[string]bool{
	"nfs": true, "cifs": true, "smb": true, "smb2": true, "9p": true, "afs": true, "coda": true,
	"ncp": true, "ceph": true, "fuse.sshfs": true, "fuse": false, "lustre": true, "gfs2": true, "ocfs2": true,
	"smbfs": true, "afpfs": true, "webdav": true, "gpfs": true,
}

func trimmed(b []byte) string { return strings.TrimSpace(string(b)) }
