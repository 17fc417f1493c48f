//go:build unix

package proc

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// KeepReaping collects adopted orphans as they end, until stop is called,
// which returns when the work is over. For a subreaper (C046).
func KeepReaping() (stop func()) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ended:
				ReapAdopted()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		signal.Stop(ended)
		close(quit)
		<-done
	}
}
