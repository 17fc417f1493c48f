//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "bench: the measurements read the clocks, the process table and the system calls of Linux")
	os.Exit(1)
}
