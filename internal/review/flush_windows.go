package review

// flush does nothing: a directory cannot be flushed here.
func flush(string) error { return nil }
