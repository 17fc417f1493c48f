package slot

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/handsel/handsel/internal/proc"
)

// RecordSize is the length to which a record is padded, so that one pwrite
// always replaces all of the one before it (S6).
const RecordSize = 512

// maxRecord is the longest text that is still read as a record (S7).
const maxRecord = 64 << 10

// Record is what a holder writes into its slot. The first seven fields are the
// source's own format; readers of that format must count right from them, and
// so must we when only they are there (S6).
type Record struct {
	Cap          int      `json:"cap"`           // the cap the holder read; 0 = none
	ChildPid     *int     `json:"child_pid"`     // null until the child exists
	ChildStarted *float64 `json:"child_started"` // seconds since the epoch, as psutil computes it
	Engine       string   `json:"engine"`
	HolderPid    int      `json:"holder_pid"`
	Since        float64  `json:"since"` // seconds since the epoch
	Workload     string   `json:"workload"`

	ChildTicks  uint64 `json:"child_ticks,omitempty"`
	BootID      string `json:"boot_id,omitempty"`
	PidNS       uint64 `json:"pid_ns,omitempty"`
	HolderTicks uint64 `json:"holder_ticks,omitempty"`
	Run         string `json:"run,omitempty"`
	Argv0       string `json:"argv0,omitempty"`
}

// Child is what the record says of the agent: false when it names none.
func (r *Record) Child() (proc.Claim, bool) {
	if r == nil || r.ChildPid == nil {
		return proc.Claim{}, false
	}
	c := proc.Claim{Pid: *r.ChildPid, Ticks: r.ChildTicks, Boot: r.BootID, NS: r.PidNS}
	if r.ChildStarted != nil {
		c.Started = *r.ChildStarted
	}
	return c, true
}

// Holder is what the record says of the process that wrote it.
func (r *Record) Holder() proc.Claim {
	return proc.Claim{Pid: r.HolderPid, Ticks: r.HolderTicks, Boot: r.BootID, NS: r.PidNS}
}

// setChild puts the child's identity into the record.
func (r *Record) setChild(id proc.ID) {
	pid, started := id.Pid, id.StartedEpoch()
	r.ChildPid, r.ChildStarted, r.ChildTicks = &pid, &started, id.Ticks
}

// SinceTime is when the slot was taken.
func (r *Record) SinceTime() time.Time {
	sec, frac := math.Modf(r.Since)
	return time.Unix(int64(sec), int64(frac*1e9)).UTC()
}

// encode is the record as it stands on disk. What a person alone reads is cut
// short where it would not fit.
func (r Record) encode() ([]byte, error) {
	for {
		text := r.appendTo(make([]byte, 0, RecordSize))
		if len(text) < RecordSize {
			n := len(text)
			text = text[:RecordSize]
			for ; n < RecordSize-1; n++ {
				text[n] = ' '
			}
			text[RecordSize-1] = '\n'
			return text, nil
		}
		if r.Argv0 == "" {
			return nil, errors.New("slot record does not fit its size")
		}
		r.Argv0 = r.Argv0[:len(r.Argv0)/2]
	}
}

// appendTo writes the JSON that encoding/json would write for a Record, which
// a test compares; a slot is written twice for every start.
func (r Record) appendTo(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"cap":`...), int64(r.Cap), 10)
	b = append(b, `,"child_pid":`...)
	if r.ChildPid != nil {
		b = strconv.AppendInt(b, int64(*r.ChildPid), 10)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"child_started":`...)
	if r.ChildStarted != nil {
		b = appendSeconds(b, *r.ChildStarted)
	} else {
		b = append(b, "null"...)
	}
	b = appendWord(append(b, `,"engine":`...), r.Engine)
	b = strconv.AppendInt(append(b, `,"holder_pid":`...), int64(r.HolderPid), 10)
	b = appendSeconds(append(b, `,"since":`...), r.Since)
	b = appendWord(append(b, `,"workload":`...), r.Workload)
	b = appendCount(b, `,"child_ticks":`, r.ChildTicks)
	if r.BootID != "" {
		b = appendWord(append(b, `,"boot_id":`...), r.BootID)
	}
	b = appendCount(b, `,"pid_ns":`, r.PidNS)
	b = appendCount(b, `,"holder_ticks":`, r.HolderTicks)
	if r.Run != "" {
		b = appendWord(append(b, `,"run":`...), r.Run)
	}
	if r.Argv0 != "" {
		b = appendWord(append(b, `,"argv0":`...), r.Argv0)
	}
	return append(b, '}')
}

// appendSeconds writes seconds since the epoch without an exponent.
func appendSeconds(b []byte, v float64) []byte { return strconv.AppendFloat(b, v, 'f', -1, 64) }

func appendCount(b []byte, key string, n uint64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendUint(append(b, key...), n, 10)
}

func appendWord(b []byte, word string) []byte {
	for i := range len(word) {
		if c := word[i]; c < 0x20 || c > 0x7e || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, err := json.Marshal(word)
			if err != nil {
				return append(b, `""`...)
			}
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), word...), '"')
}

// Parse reads a record. A text that is no JSON object, or too long, is no
// record at all (S7): nil.
func Parse(text []byte) *Record {
	if len(text) == 0 || len(text) > maxRecord {
		return nil
	}
	if r, ok := parsePlain(text); ok {
		return r
	}
	var loose struct {
		Cap          any `json:"cap"`
		ChildPid     any `json:"child_pid"`
		ChildStarted any `json:"child_started"`
		Engine       any `json:"engine"`
		HolderPid    any `json:"holder_pid"`
		Since        any `json:"since"`
		Workload     any `json:"workload"`
		ChildTicks   any `json:"child_ticks"`
		BootID       any `json:"boot_id"`
		PidNS        any `json:"pid_ns"`
		HolderTicks  any `json:"holder_ticks"`
		Run          any `json:"run"`
		Argv0        any `json:"argv0"`
	}
	if json.Unmarshal(text, &loose) != nil || firstByte(text) != '{' {
		return nil
	}
	r := &Record{
		Cap: int(whole(loose.Cap)), Engine: word(loose.Engine), HolderPid: int(whole(loose.HolderPid)),
		Workload: word(loose.Workload), BootID: word(loose.BootID), Run: word(loose.Run), Argv0: word(loose.Argv0),
		ChildTicks: whole(loose.ChildTicks), PidNS: whole(loose.PidNS), HolderTicks: whole(loose.HolderTicks),
	}
	r.Since, _ = loose.Since.(float64)
	if n, ok := loose.ChildPid.(float64); ok {
		pid := int(whole(n))
		r.ChildPid = &pid
	}
	if n, ok := loose.ChildStarted.(float64); ok {
		r.ChildStarted = &n
	}
	return r
}

func word(v any) string { s, _ := v.(string); return s }

// whole is v as a whole number, 0 when it is none or out of range.
func whole(v any) uint64 {
	f, ok := v.(float64)
	if !ok || f < 0 || f != math.Trunc(f) || f > 1<<53 {
		return 0
	}
	return uint64(f)
}

func firstByte(text []byte) byte {
	for _, c := range text {
		if c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
	}
	return 0
}

// parsePlain reads the flat, escape-free objects that holders write: counting
// reads one for every held slot, and a general decoder would cost more than
// the system calls around it. It gives up (false) on anything unusual, and
// Parse then asks encoding/json, whose answer is the rule.
func parsePlain(text []byte) (*Record, bool) {
	r := new(Record)
	s := scanner{text: text}
	return r, s.object(r)
}

// brief is what counting needs of a held slot's record.
type brief struct {
	limit, holder int
	boot          []byte
	ns            uint64
}

// briefly reads what counting needs, without keeping anything else. It gives
// up like parsePlain.
func briefly(text []byte) (brief, bool) {
	if len(text) > maxRecord {
		return brief{}, false
	}
	var r Record
	s := scanner{text: text, brief: true}
	ok := s.object(&r)
	return brief{limit: r.Cap, holder: r.HolderPid, boot: s.boot, ns: r.PidNS}, ok
}

// scanner reads one object. With brief it keeps only numbers that counting
// needs, and makes no garbage.
type scanner struct {
	text  []byte
	at    int
	brief bool
	boot  []byte
}

func (s *scanner) object(r *Record) bool {
	if !s.eat('{') {
		return false
	}
	for {
		key, ok := s.str()
		if !ok || !s.eat(':') || !s.field(r, key) {
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

func (s *scanner) blank() {
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
func (s *scanner) str() ([]byte, bool) {
	if !s.eat('"') {
		return nil, false
	}
	for start := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return s.text[start : s.at-1], true
		case c < 0x20 || c > 0x7e || c == '\\':
			return nil, false
		}
	}
	return nil, false
}

// number reads an unsigned decimal number as JSON writes it.
func (s *scanner) number() ([]byte, bool) {
	s.blank()
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
	plain := len(n) > 0 && dots <= 1 && n[0] != '.' && n[len(n)-1] != '.' && (n[0] != '0' || len(n) == 1 || n[1] == '.')
	return n, plain
}

func (s *scanner) null() bool {
	s.blank()
	if s.at+4 <= len(s.text) && string(s.text[s.at:s.at+4]) == "null" {
		s.at += 4
		return true
	}
	return false
}

func (s *scanner) field(r *Record, key []byte) bool {
	switch string(key) {
	case "cap":
		return s.int(&r.Cap)
	case "holder_pid":
		return s.int(&r.HolderPid)
	case "child_pid":
		if s.null() {
			r.ChildPid = nil
			return true
		}
		var pid int
		ok := s.int(&pid)
		if !s.brief {
			r.ChildPid = &pid
		}
		return ok
	case "child_started":
		if s.null() {
			r.ChildStarted = nil
			return true
		}
		var started float64
		ok := s.float(&started)
		if !s.brief {
			r.ChildStarted = &started
		}
		return ok
	case "since":
		return s.float(&r.Since)
	case "child_ticks":
		return s.uint(&r.ChildTicks)
	case "pid_ns":
		return s.uint(&r.PidNS)
	case "holder_ticks":
		return s.uint(&r.HolderTicks)
	case "boot_id":
		if s.brief {
			var ok bool
			s.boot, ok = s.str()
			return ok
		}
		return s.word(&r.BootID)
	case "engine":
		return s.word(&r.Engine)
	case "workload":
		return s.word(&r.Workload)
	case "run":
		return s.word(&r.Run)
	case "argv0":
		return s.word(&r.Argv0)
	}
	return false
}

func (s *scanner) word(into *string) bool {
	text, ok := s.str()
	if ok && !s.brief {
		*into = string(text)
	}
	return ok
}

func (s *scanner) uint(into *uint64) bool {
	n, ok := s.number()
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

func (s *scanner) float(into *float64) bool {
	n, ok := s.number()
	if !ok || s.brief {
		return ok
	}
	v, err := strconv.ParseFloat(string(n), 64)
	*into = v
	return err == nil
}
