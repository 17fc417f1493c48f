package handoff

import (
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkEnqueue is a request with a descriptor and its answer, from connect
// to close: what this room adds to a commit (G7).
func BenchmarkEnqueue(b *testing.B) {
	l, d := listen(b)
	defer serve(l)()
	fd, _ := locked(b)
	defer unix.Close(fd)
	for b.Loop() {
		c, err := Dial(b.Context(), d)
		if err != nil {
			b.Fatal(err)
		}
		f, err := c.Exchange(b.Context(), Ask{Attempt: "x"}, fd)
		if err != nil {
			b.Fatal(err)
		}
		f.CloseFds()
		c.Close()
	}
}
