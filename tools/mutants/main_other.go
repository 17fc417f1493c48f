//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "mutants: the tests it runs need Linux, and a pid namespace of their own")
	os.Exit(2)
}
