// Command handsel decides when a command-line agent may start on this machine
// and ends all of it when its time is over.

// A waiting process does not wake up to see whether it got more processors.
//go:debug updatemaxprocs=0

package main

import (
	"os"

	"github.com/handsel/handsel/internal/cli"
)

// version is set when the program is linked.
var version = "devel"

func main() {
	cli.Version = version
	os.Exit(cli.Main(os.Args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
