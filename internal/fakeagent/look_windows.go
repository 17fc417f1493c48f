package fakeagent

// Alive is not known on Windows, where no stand-in stays behind.
func (p Process) Alive() bool { return false }
