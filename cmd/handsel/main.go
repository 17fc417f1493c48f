// Command handsel decides when a command-line agent may start on this machine
// and ends all of it when its time is over.

// A waiting process does not wake up to see whether it got more processors.
//go:debug updatemaxprocs=0

package main

import (
	"os"
	"runtime"

	"github.com/handsel/handsel/internal/cli"
)

// version is set when the program is linked.
var version = "devel"

func main() {
	// One run is one child and a few events: more processors only make the
	// runtime start threads and pass work around between them.
	runtime.GOMAXPROCS(1)
	cli.Version = version
	os.Exit(cli.Main(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
