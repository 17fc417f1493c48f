package proc

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// onThreadOfItsOwn runs f on a thread that ends with it, so that whatever f does
// to its thread stays there and with what f forks. The goroutine never unlocks
// the thread, which the runtime therefore ends with it; threads of the runtime's
// own are never made from such a one.
//
// It is never the process's first thread. The runtime cannot end that one and
// would park it for good as it is, and it is the one by which the kernel judges
// who may signal or trace this process.
func onThreadOfItsOwn(f func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			err = onThreadOfItsOwn(f) // meanwhile the first thread is taken: by us
			runtime.UnlockOSThread()
			return
		}
		err = f()
	}()
	<-done
	return err
}
