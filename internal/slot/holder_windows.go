package slot

func (s *Seen) holderGone() bool { return false }
