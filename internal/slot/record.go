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
		text, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		if len(text) < RecordSize {
			padded := make([]byte, RecordSize)
			for n := copy(padded, text); n < RecordSize-1; n++ {
				padded[n] = ' '
			}
			padded[RecordSize-1] = '\n'
			return padded, nil
		}
		if r.Argv0 == "" {
			return nil, errors.New("slot record does not fit its size")
		}
		r.Argv0 = r.Argv0[:len(r.Argv0)/2]
	}
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
	s := scanner{text: text}
	if !s.eat('{') {
		return nil, false
	}
	r := new(Record)
	for {
		key, ok := s.str()
		if !ok || !s.eat(':') {
			return nil, false
		}
		if !s.field(r, key) {
			return nil, false
		}
		if s.eat('}') {
			s.blank()
			return r, s.at == len(s.text)
		}
		if !s.eat(',') {
			return nil, false
		}
	}
}

type scanner struct {
	text []byte
	at   int
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
	s.blank()
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

// str reads a string of printable ASCII without escapes.
func (s *scanner) str() (string, bool) {
	if !s.eat('"') {
		return "", false
	}
	for start := s.at; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			return string(s.text[start : s.at-1]), true
		case c < 0x20 || c > 0x7e || c == '\\':
			return "", false
		}
	}
	return "", false
}

// number reads an unsigned decimal number as JSON writes it.
func (s *scanner) number() (string, bool) {
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
	n := string(s.text[start:s.at])
	plain := n != "" && dots <= 1 && n[0] != '.' && n[len(n)-1] != '.' && (n[0] != '0' || len(n) == 1 || n[1] == '.')
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

func (s *scanner) field(r *Record, key string) bool {
	switch key {
	case "cap":
		return s.int(&r.Cap)
	case "holder_pid":
		return s.int(&r.HolderPid)
	case "child_pid":
		if s.null() {
			r.ChildPid = nil
			return true
		}
		r.ChildPid = new(int)
		return s.int(r.ChildPid)
	case "child_started":
		if s.null() {
			r.ChildStarted = nil
			return true
		}
		r.ChildStarted = new(float64)
		return s.float(r.ChildStarted)
	case "since":
		return s.float(&r.Since)
	case "child_ticks":
		return s.uint(&r.ChildTicks)
	case "pid_ns":
		return s.uint(&r.PidNS)
	case "holder_ticks":
		return s.uint(&r.HolderTicks)
	case "engine":
		return s.word(&r.Engine)
	case "workload":
		return s.word(&r.Workload)
	case "boot_id":
		return s.word(&r.BootID)
	case "run":
		return s.word(&r.Run)
	case "argv0":
		return s.word(&r.Argv0)
	}
	return false
}

func (s *scanner) word(into *string) (ok bool) {
	*into, ok = s.str()
	return ok
}

func (s *scanner) uint(into *uint64) bool {
	n, ok := s.number()
	if !ok {
		return false
	}
	v, err := strconv.ParseUint(n, 10, 53)
	*into = v
	return err == nil
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
	if !ok {
		return false
	}
	v, err := strconv.ParseFloat(n, 64)
	*into = v
	return err == nil
}
