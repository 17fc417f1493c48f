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
			text = append(text, padding[:RecordSize-1-len(text)]...)
			return append(text, '\n'), nil
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
	if f, ok := scan(text); ok {
		return f.record(text)
	}
	return parseAny(text)
}

// parseAny is the rule by which Parse goes.
func parseAny(text []byte) *Record {
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
