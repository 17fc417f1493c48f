package attempt

// flushDir does nothing: Windows keeps names without being asked.
func flushDir(string) error { return nil }
