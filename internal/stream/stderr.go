package stream

import "bytes"

// How much of stderr is remembered to be shown when a run fails (C102).
const (
	mostSaid  = 5   // lines
	mostShown = 200 // bytes of a line
)

// stderr reads what a run prints to its stderr: text, of which an engine may
// tell there, and only there, that it is refused.
type stderr struct {
	r    *Reader
	line []byte
	said [][]byte // the last lines that are not empty, each from its beginning
}

// Write reads lines. It never fails. A line is handed over once it has ended; of
// one longer than 64 KiB, that much is.
func (s *stderr) Write(p []byte) (int, error) {
	s.r.begin()
	defer s.r.end()
	if s.r.closed {
		return len(p), nil
	}
	ended := false
	for rest := p; len(rest) > 0; {
		line, more, found := bytes.Cut(rest, []byte{'\n'})
		rest = more
		switch {
		case found && len(s.line) == 0:
			s.take(line[:min(len(line), mostText)])
		case found:
			s.keep(line)
			s.take(s.line)
			s.line = s.line[:0]
		default:
			s.keep(line)
		}
		ended = ended || found
	}
	if ended {
		s.show()
	}
	return len(p), nil
}

func (s *stderr) keep(part []byte) {
	s.line = append(s.line, part[:min(len(part), mostText-len(s.line))]...)
}

// last takes what has no newline for a line.
func (s *stderr) last() {
	if len(s.line) > 0 {
		s.take(s.line)
		s.line = nil
		s.show()
	}
}

func (s *stderr) take(line []byte) {
	r := s.r
	r.counts.Stderr++
	line = bytes.TrimRight(line, "\r")
	if before(line).length == len(line) {
		return
	}
	s.remember(line)
	if r.decoder == nil {
		return
	}
	r.told = told{}
	if r.events(r.decoder.Stderr(line), Line{}); r.told.others+r.told.news > 0 {
		r.progress()
	}
}

// remember keeps the beginning of a line in place of the oldest.
func (s *stderr) remember(line []byte) {
	var room []byte
	if len(s.said) == mostSaid {
		room = s.said[0]
		copy(s.said, s.said[1:])
		s.said = s.said[:mostSaid-1]
	}
	s.said = append(s.said, append(room[:0], line[:min(len(line), 2*mostShown)]...))
}

// show puts what is remembered where it can be asked for.
func (s *stderr) show() {
	said := make([]string, len(s.said))
	for i, line := range s.said {
		said[i] = clean(line, mostShown)
	}
	s.r.mu.Lock()
	s.r.summary.Said = said
	s.r.mu.Unlock()
}
