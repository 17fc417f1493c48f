package run

import "os"

// widen leaves a pipe as it is: the system lets it grow by itself.
func widen(*os.File) {}
