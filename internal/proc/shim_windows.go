package proc

// ShimOf never finds a shim: there are none on Windows.
func ShimOf(string) (name string, ok bool) { return "", false }
