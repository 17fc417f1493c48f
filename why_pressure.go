package handsel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/pressure"
)

// ofPressure tells whether a code is one of pressure's.
func ofPressure(code string) bool {
	return code == pressure.Enough || code == pressure.NotConfigured || slices.Contains(pressure.Codes, code)
}

// pressed asks the machine, with what it says now (P6). What somebody waits for
// already is judged as for them: by the limit and the margin.
func (y *inquiry) pressed() {
	s, _ := config.LoadLenient(y.h.configEnv())
	set := pressureOf(s.Pressure)
	if !set.On() {
		y.ask(Permission{Class: "resource", Answer: AnswerGo, Code: pressure.NotConfigured, Message: "no limit on memory, load or disk is configured ([pressure])"})
		return
	}
	all := pressure.Look(set, y.h.dir.Path)
	at := y.h.places(s)
	var was pressure.Told
	if code := y.waitsFor(); ofPressure(code) {
		was.Held = []string{code}
	}
	gates := y.gate()
	answer, _ := pressure.Decide(set, all, was, machine.SinceBoot(), func() bool {
		alone, err := lease.Alone(at, gates)
		return err == nil && alone
	})
	if answer.Code() == "" {
		var say []string
		for _, m := range all {
			say = append(say, m.Say())
		}
		p := Permission{Class: "resource", Answer: AnswerGo, Code: pressure.Enough, Message: strings.Join(say, "; ")}
		if len(answer.Blind) > 0 {
			p.Code, p.Message = pressure.NoAnswer, p.Message+`; fail = "open" starts all the same`
		}
		y.ask(p)
		return
	}
	p := Permission{Class: "resource", Answer: AnswerWait, Code: answer.Code(), Message: answer.String()}
	if cause := y.h.cause(at); cause != "" && memoryShort(answer) {
		p.Message += "; " + cause
	}
	p.Ends = "that is better again, or the limit is changed"
	if p.Code == pressure.NoAnswer {
		p.Ends = `it can be read again, or fail = "open"`
	}
	if answer.Idle {
		p.Ends += fmt.Sprintf("; as %s, one start goes all the same when it has been held for %v", nobodyRuns(gates), set.MaxHold)
	}
	y.ask(p)
}

// waitsFor is the code by which what is asked about says it waits.
func (y *inquiry) waitsFor() string {
	if r := y.rows[y.out.Attempt]; r != nil && r.Reason != nil {
		return r.Reason.Code
	}
	if t := y.ticket(y.out.Attempt); t != nil && y.out.Attempt != "" {
		return t.Reason
	}
	return ""
}

// gate tells whether a heavy command waits.
func (y *inquiry) gate() bool {
	t := y.ticket(y.out.Attempt)
	return t != nil && y.out.Attempt != "" && t.Workload == lease.GateWorkload
}
