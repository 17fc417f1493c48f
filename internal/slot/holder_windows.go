package slot

func holderGone(brief) bool { return false }
