package slot

import (
	"math"
	"strconv"
	"strings"

	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/proc"
)

// fields is a record as it lies in its text: it says where the words are, and
// nothing was copied to make it.
type fields struct {
	limit, holder, child                               int
	hasChild, hasStart                                 bool
	childTicks, holderTicks, ns                        uint64
	started, since, boot, engine, workload, run, argv0 span
}

// span is a part of a text.
type span struct{ from, to int32 }

func (p span) of(text []byte) []byte { return text[p.from:p.to] }

// scan reads the flat, escape-free objects that holders write: counting reads
// one for every held slot, and a general decoder would cost more than the
// system calls around it. It gives up (false) on anything unusual, and
// encoding/json, whose answer is the rule, is asked then.
func scan(text []byte) (fields, bool) {
	s := scanner{text: text}
	ok := len(text) <= maxRecord && s.object()
	return s.fields, ok
}

// record copies what the fields say of text.
func (f *fields) record(text []byte) *Record {
	r := &Record{
		Cap: f.limit, HolderPid: f.holder, ChildTicks: f.childTicks, HolderTicks: f.holderTicks, PidNS: f.ns,
		Engine: usual(f.engine.of(text)), Workload: usual(f.workload.of(text)),
		Run: string(f.run.of(text)), Argv0: string(f.argv0.of(text)),
		BootID: f.bootID(text), Since: seconds(f.since.of(text)),
	}
	if f.hasChild {
		child := f.child
		r.ChildPid = &child
	}
	if f.hasStart {
		started := seconds(f.started.of(text))
		r.ChildStarted = &started
	}
	return r
}

// usual saves copying the words that nearly every record has.
func usual(word []byte) string {
	switch string(word) {
	case "heavy":
		return "heavy"
	case "light":
		return "light"
	case "gate":
		return "gate"
	case "codex":
		return "codex"
	case "claude":
		return "claude"
	}
	return string(word)
}

// bootID is nearly always this boot's, which needs no copy.
func (f *fields) bootID(text []byte) string {
	if now := machine.BootID(); string(f.boot.of(text)) == now {
		return now
	}
	return string(f.boot.of(text))
}

// claim is what the fields say of the agent.
func (f *fields) claim(text []byte) (proc.Claim, bool) {
	if !f.hasChild {
		return proc.Claim{}, false
	}
	c := proc.Claim{Pid: f.child, Ticks: f.childTicks, Boot: f.bootID(text), NS: f.ns}
	if f.hasStart {
		c.Started = seconds(f.started.of(text))
	}
	return c, true
}

// seconds is a number that was scanned; its length keeps it in range.
func seconds(text []byte) float64 {
	v, _ := strconv.ParseFloat(string(text), 64)
	return v
}

// scanner reads one object.
type scanner struct {
	fields
	text []byte
	at   int
}

func (s *scanner) object() bool {
	if !s.eat('{') {
		return false
	}
	for {
		key, ok := s.str()
		if !ok || !s.eat(':') || !s.field(key.of(s.text)) {
			return false
		}
		if s.eat('}') {
			s.blank()
			return s.at == len(s.text)
		}
		if !s.eat(',') {
			return false
		}
	}
}

// padding is how a record of ours ends.
var padding = strings.Repeat(" ", RecordSize)

func (s *scanner) blank() {
	// Most of the blanks of a record are its padding: compared at once.
	if rest := s.text[s.at:]; len(rest) > 1 && len(rest) <= len(padding) && string(rest[:len(rest)-1]) == padding[:len(rest)-1] {
		s.at = len(s.text) - 1
	}
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case ' ', '\n', '\r', '\t':
			s.at++
		default:
			return
		}
	}
}

func (s *scanner) eat(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	s.blank()
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// str reads a string of printable ASCII without escapes.
func (s *scanner) str() (span, bool) {
	if !s.eat('"') {
		return span{}, false
	}
	start := s.at
	for i, c := range s.text[start:] {
		if plain[c] {
			continue
		}
		s.at += i + 1
		return span{int32(start), int32(start + i)}, c == '"'
	}
	return span{}, false
}

// plain marks the bytes that stand for themselves in a string.
var plain = func() (is [256]bool) {
	for c := ' '; c <= '~'; c++ {
		is[c] = c != '"' && c != '\\'
	}
	return is
}()

// number reads an unsigned decimal number as JSON writes it.
func (s *scanner) number() (span, bool) {
	s.space()
	start, dots := s.at, 0
	for ; s.at < len(s.text); s.at++ {
		c := s.text[s.at]
		if c == '.' {
			dots++
		} else if c < '0' || c > '9' {
			break
		}
	}
	n := s.text[start:s.at]
	ok := len(n) > 0 && len(n) < 40 && dots <= 1 && n[0] != '.' && n[len(n)-1] != '.' && (n[0] != '0' || len(n) == 1 || n[1] == '.')
	return span{int32(start), int32(s.at)}, ok
}

// space is blank where a value begins, so usually nothing.
func (s *scanner) space() {
	if s.at < len(s.text) && s.text[s.at] <= ' ' {
		s.blank()
	}
}

func (s *scanner) null() bool {
	s.space()
	if s.at+4 <= len(s.text) && string(s.text[s.at:s.at+4]) == "null" {
		s.at += 4
		return true
	}
	return false
}

func (s *scanner) field(key []byte) bool {
	switch string(key) {
	case "cap":
		return s.int(&s.limit)
	case "holder_pid":
		return s.int(&s.holder)
	case "child_pid":
		s.hasChild = !s.null()
		return !s.hasChild || s.int(&s.child)
	case "child_started":
		if s.hasStart = !s.null(); !s.hasStart {
			s.started = span{}
			return true
		}
		return s.seconds(&s.started)
	case "since":
		return s.seconds(&s.since)
	case "child_ticks":
		return s.uint(&s.childTicks)
	case "pid_ns":
		return s.uint(&s.ns)
	case "holder_ticks":
		return s.uint(&s.holderTicks)
	case "boot_id":
		return s.word(&s.boot)
	case "engine":
		return s.word(&s.engine)
	case "workload":
		return s.word(&s.workload)
	case "run":
		return s.word(&s.run)
	case "argv0":
		return s.word(&s.argv0)
	}
	return false
}

func (s *scanner) word(into *span) (ok bool) {
	*into, ok = s.str()
	return ok
}

func (s *scanner) seconds(into *span) (ok bool) {
	*into, ok = s.number()
	return ok
}

func (s *scanner) uint(into *uint64) bool {
	at, ok := s.number()
	n := at.of(s.text)
	if !ok || len(n) > 15 {
		return false // 15 digits are exact in a float64, as for encoding/json
	}
	var v uint64
	for _, c := range n {
		if c == '.' {
			return false
		}
		v = 10*v + uint64(c-'0')
	}
	*into = v
	return true
}

func (s *scanner) int(into *int) bool {
	var v uint64
	if !s.uint(&v) || v > math.MaxInt32 {
		return false
	}
	*into = int(v)
	return true
}
