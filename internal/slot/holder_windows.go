package slot

func holderGone(*Record) bool { return false }
