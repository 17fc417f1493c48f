package home

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// asUser answers for a user of a passwd file, with a getent of our own.
func asUser(t *testing.T, uid int, passwd, getent string) {
	t.Helper()
	dir := t.TempDir()
	oldFile, oldGetents, oldSelf := passwdFile, getents, self
	t.Cleanup(func() { passwdFile, getents, self = oldFile, oldGetents, oldSelf; knownHomes.Clear() })
	knownHomes.Clear()
	self = func() int { return uid }
	passwdFile = filepath.Join(dir, "passwd")
	must(t, os.WriteFile(passwdFile, []byte(passwd), 0o644))
	getents = []string{filepath.Join(dir, "none"), filepath.Join(dir, "getent")}
	if getent != "" {
		must(t, os.WriteFile(getents[1], []byte("#!/bin/sh\n"+getent+"\n"), 0o755))
	}
}

const somePasswd = "# 1234 is nobody's\n\nroot:x:0:0:root:/root:/bin/sh\nshort:x:77\na:x:1234:1:A:/home/a:/bin/sh\n" +
	"b:x:1235:1:B:relative:/bin/sh\nc:x:1236:1:C::/bin/sh\nd:x:1237:1:D:/home/d/:/bin/sh"

func TestUserHomeIsThePasswdEntrys(t *testing.T) { // C6
	for _, tt := range []struct {
		uid    int
		getent string
		home   string // empty: *BadPath
	}{
		{1234, "echo asked >&2; exit 3", "/home/a"},
		{0, "exit 3", "/root"},
		{1237, "exit 3", "/home/d"},
		{1235, "exit 3", ""}, // relative
		{1236, "exit 3", ""}, // empty
		{4321, `test "$1 $2" = "passwd 4321" && echo 'e:*:4321:1:E:/home/e:/bin/sh'`, "/home/e"},
		{4321, `test -z "$HANDSEL_TEST_LEAK" && echo 'e:*:4321:1:E:/home/e:/bin/sh'`, "/home/e"},
		{4321, "exit 2", ""},
		{4321, "", ""}, // no getent at all
		{77, "exit 2", ""},
	} {
		t.Setenv("HANDSEL_TEST_LEAK", "1")
		asUser(t, tt.uid, somePasswd, tt.getent)
		got, err := UserHome()
		if tt.home == "" {
			if _, ok := errors.AsType[*BadPath](err); !ok {
				t.Errorf("uid %d: UserHome = %q, %v, want *BadPath", tt.uid, got, err)
			}
			continue
		}
		if err != nil || got != tt.home {
			t.Errorf("uid %d: UserHome = %q, %v, want %q", tt.uid, got, err, tt.home)
		}
	}
}

// A user directory that does not answer is not the same as no entry: the user's
// configuration may hold a cap.
func TestUnansweredUserDirectoryIsNotAbsence(t *testing.T) {
	asUser(t, 4321, somePasswd, "exit 1")
	_, err := UserHome()
	if _, ok := errors.AsType[*Unusable](err); !ok || errors.Is(err, ErrNoEntry) {
		t.Errorf("UserHome = %v, want *Unusable", err)
	}
	asUser(t, 4321, somePasswd, "exit 2")
	if _, err := UserHome(); !errors.Is(err, ErrNoEntry) {
		t.Errorf("UserHome = %v, want ErrNoEntry", err)
	}
}
