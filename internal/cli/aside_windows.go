package cli

import "syscall"

// apart has a process begin in a group of its own, which our Ctrl-C does not reach.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

func aside() error { return nil }
