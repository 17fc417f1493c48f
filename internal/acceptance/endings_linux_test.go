package acceptance

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// endings is how many runs TestRecordsAgreeWithWhatHappened makes (see part); with
// HANDSEL_SOAK a thousand.
const endings = 40

// ending is what a stand-in for claude does, decided before it is started. What
// handsel has to say of it follows from this and from nothing that handsel says.
type ending struct {
	verb   string // agent, or run with --record and the same command line
	begins bool   // it tells its conversation
	fault  string // what its service refuses: a key of faults, or ""
	goesOn bool   // it gets over that and says something
	noise  int    // lines that are no events
	stderr string
	result string // a key of results, or ""
	stays  bool   // after its result, until it is ended
	code   int
	signal unix.Signal // 0: it exits
	shut   bool        // it closes stdout and lives on
}

// faults are lines in which claude tells of what its service refuses, by the kind
// they come to.
var faults = map[string]string{
	"limit":    `{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":4102444800,"rateLimitType":"five_hour"}}`,
	"throttle": `{"type":"system","subtype":"api_retry","attempt":2,"max_retries":10,"retry_delay_ms":5,"error_status":529,"error":"overloaded"}`,
	"login":    `{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"retry_delay_ms":5,"error_status":401,"error":"authentication_failed"}`,
}

const (
	usageFields = `"num_turns":2,"total_cost_usd":0.25,"usage":{"input_tokens":5,"output_tokens":7}`
	resetAt     = "2100-01-01T00:00:00.000Z" // of the limits here
)

// results are claude's last lines.
var results = map[string]string{
	"answer":  `{"type":"result","subtype":"success","is_error":false,"result":"The answer.",` + usageFields + `}`,
	"empty":   `{"type":"result","subtype":"success","is_error":false,"result":"",` + usageFields + `}`,
	"error":   `{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["it broke"],` + usageFields + `}`,
	"limit":   `{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"Claude AI usage limit reached|4102444800",` + usageFields + `}`,
	"login":   `{"type":"result","subtype":"success","is_error":true,"api_error_status":401,"result":"Please run /login",` + usageFields + `}`,
	"half":    `{"type":"result","subtype":"success","is_error":false,"result":"The ans`,
	"refusal": `{"type":"result","subtype":"success","is_error":false,"result":"401 usage limit reached, Please run /login",` + usageFields + `}`, // healthy text (E11)
}

func pick[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

// anEnding is one at random.
func anEnding(r *rand.Rand) ending {
	e := ending{
		verb: pick(r, "agent", "agent", "run"), begins: r.IntN(8) > 0, noise: r.IntN(3), stderr: strings.Repeat("warn\n", r.IntN(3)),
		fault: pick(r, "", "", "", "limit", "throttle", "login"), result: pick(r, "answer", "answer", "answer", "empty", "error", "limit", "login", "half", "refusal", ""),
	}
	switch r.IntN(6) {
	case 0, 1:
		e.code = pick(r, 1, 2, 75, 124, 125, 126, 127, 130, 137, 255, 3+r.IntN(250))
	case 2:
		e.signal = pick(r, unix.SIGKILL, unix.SIGTERM, unix.SIGSEGV, unix.SIGABRT, unix.SIGINT, unix.SIGPIPE, unix.SIGHUP)
	}
	e.goesOn = e.fault != "" && r.IntN(2) == 0
	if e.result == "limit" || e.result == "login" {
		e.goesOn = e.fault != "" // of two refusals that stand, which is told is the decoder's business
	}
	e.stays = e.verb == "agent" && e.result != "" && e.result != "half" && e.code == 0 && e.signal == 0 && r.IntN(4) == 0
	if !e.stays && e.result == "" && r.IntN(8) == 0 {
		e.shut = true
	}
	return e
}

// script is the ending as a shell has it, and printed what it prints.
func (e ending) script() (script, printed string) {
	var out strings.Builder
	if e.begins {
		out.WriteString(`{"type":"system","subtype":"init","session_id":"0d9c7f6e-0000-4000-8000-000000000001","model":"m","claude_code_version":"2.1.197"}` + "\n")
	}
	if e.fault != "" {
		out.WriteString(faults[e.fault] + "\n")
	}
	if e.goesOn {
		out.WriteString(`{"type":"assistant","message":{"content":[{"type":"text","text":"I look."}]}}` + "\n")
	}
	for i := range e.noise {
		fmt.Fprintf(&out, "noise %d that is no event, usage limit reached\n", i)
	}
	out.WriteString(results[e.result])
	if e.result != "" && e.result != "half" {
		out.WriteString("\n")
	}
	printed = out.String()
	script = "cat >/dev/null\nprintf %s '" + printed + "'\nprintf %s '" + e.stderr + "' >&2\n"
	switch {
	case e.stays:
		script += "exec sleep 60\n"
	case e.shut:
		script += "exec >&-\nsleep 1.5\n"
	}
	if e.signal != 0 {
		return script + fmt.Sprintf("kill -%d $$\nsleep 60\n", int(e.signal)), printed
	}
	return script + fmt.Sprintf("exit %d\n", e.code), printed
}

// failed tells whether its last line says that it failed.
func (e ending) failed() bool {
	return e.result == "error" || e.result == "limit" || e.result == "login"
}

// kind is why it failed; "" for one that succeeded (E11).
func (e ending) kind() string {
	switch {
	case e.result == "limit", e.result == "login":
		return e.result
	}
	answered := e.result == "answer" || e.result == "empty" || e.result == "refusal"
	if e.fault != "" && !e.goesOn && !answered {
		return e.fault // what it did not get over is the reason
	}
	switch {
	case e.failed(), e.signal != 0, e.code != 0:
		return "agent"
	case e.shut:
		return "output_lost"
	case e.result == "answer", e.result == "refusal":
		return ""
	}
	return "no_result"
}

// told is what a record and an outcome file have in common, and what else of a
// record follows from an ending.
type told struct {
	State    string
	Outcome  string
	ExitCode *int `json:"exit_code"`
	Signal   int
	Result   string
	Kind     string
	Until    string
	Session  string `json:"session_id"`
	Usage    *struct {
		Output int `json:"output_tokens"`
		Turns  int
	}
	Output *struct {
		Stdout    int `json:"stdout_bytes"`
		Stderr    int `json:"stderr_bytes"`
		Truncated int `json:"truncated_bytes"`
	}
	Child *struct{ Pid int }
	Notes []string
}

// wrong lists where what was told is not what happened.
func (e ending) wrong(t told) (all []string) {
	check := func(what string, got, want any) {
		if got != want {
			all = append(all, fmt.Sprintf("%s is %v, want %v", what, got, want))
		}
	}
	outcome, code := "exited", strconv.Itoa(e.code)
	if e.signal != 0 {
		outcome, code = "signaled", "none"
	}
	got := "none"
	if t.ExitCode != nil {
		got = strconv.Itoa(*t.ExitCode)
	}
	check("outcome", t.Outcome, outcome)
	check("exit code", got, code)
	check("signal", t.Signal, int(e.signal))
	result, until := "succeeded", ""
	if e.kind() != "" {
		result = "failed"
	}
	if e.kind() == "limit" {
		until = resetAt
	}
	check("result", t.Result, result)
	check("kind", t.Kind, e.kind())
	check("until", t.Until, until)
	session := ""
	if e.begins {
		session = "0d9c7f6e-0000-4000-8000-000000000001"
	}
	check("session", t.Session, session)
	check("usage is told", t.Usage != nil, e.result != "" && e.result != "half")
	if t.Usage != nil {
		check("tokens", t.Usage.Output, 7)
		check("turns", t.Usage.Turns, 2)
	}
	return all
}

// status is how handsel has to end.
func (e ending) status() string {
	switch {
	case e.signal != 0:
		return "signal " + unix.SignalName(e.signal)
	case e.verb == "agent" && e.code == 0 && e.kind() != "":
		return "exit 1"
	}
	return "exit " + strconv.Itoa(e.code)
}

// plays is a place in which claude does what the file $PLAN says.
func plays(t testing.TB) *place {
	p := ordinary(t)
	bin := p.file("bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	p.program("bin/claude", "#!/bin/sh\n. \"$PLAN\"\n")
	settings := "[engine.claude]\nresult_grace = \"200ms\"\n"
	for n := range 1000 {
		settings += "[accounts.claude." + accountOf(n) + "]\n"
	}
	return p.with("PATH=" + bin + ":/usr/bin:/bin").config(settings)
}

// accountOf is the account of the n-th ending: the limits and logins that one meets
// hold no other back.
func accountOf(n int) string { return "n" + strconv.Itoa(n) }

// argv is the command line of handsel for a claude that plays this.
func (e ending) argv(flags ...string) []string {
	if e.verb == "agent" {
		return append(append([]string{"agent", "--engine", "claude"}, flags...), "say something")
	}
	return append(append([]string{"run", "--record"}, flags...), "--", "claude", "-p", "--verbose", "--output-format", "stream-json", "x")
}

// of is the same place for a part of its test.
func (p *place) of(t testing.TB) *place {
	q := *p
	q.t = t
	return &q
}

// read reads what was told.
func read(path string) (t told, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &t)
	}
	return t, err
}

// one runs an ending and lists what is wrong with what was told of it.
func (e ending) one(p *place, n int) (wrong []string) {
	name := fmt.Sprintf("plan-%d", n)
	script, printed := e.script()
	p.write(name, script)
	outcome := p.file(name + ".json")
	label := fmt.Sprintf("n=%d", n)
	c := p.with("PLAN=" + p.file(name)).handsel(e.argv("--account", accountOf(n), "--outcome", outcome, "--label", label)...)
	end, _, errs := ends(p.t, c)
	if end != e.status() {
		wrong = append(wrong, fmt.Sprintf("handsel ended with %s, want %s; it said %q", end, e.status(), errs))
	}
	t, err := read(outcome)
	if err != nil {
		return append(wrong, err.Error())
	}
	for _, w := range e.wrong(t) {
		wrong = append(wrong, "outcome file: "+w)
	}
	return append(wrong, e.recorded(p, label, len(printed))...)
}

// recorded compares the record of the run with that label.
func (e ending) recorded(p *place, label string, printed int) (wrong []string) {
	var list struct{ Runs []told }
	out, _ := must(p.t, "exit 0", p.handsel("runs", "--json", "--label", label))
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Runs) != 1 {
		return append(wrong, fmt.Sprintf("%d records, %v", len(list.Runs), err))
	}
	r := list.Runs[0]
	for _, w := range e.wrong(r) {
		wrong = append(wrong, "record: "+w)
	}
	if r.State != "ended" || r.Child == nil {
		wrong = append(wrong, fmt.Sprintf("record: state %q, child %v", r.State, r.Child))
	}
	if o := r.Output; o == nil || o.Stdout != printed || o.Stderr != len(e.stderr) || o.Truncated != 0 {
		wrong = append(wrong, fmt.Sprintf("record: output %+v, want %d and %d", o, printed, len(e.stderr)))
	}
	noted := strings.Contains(strings.Join(r.Notes, "\n"), "result")
	if noted != e.stays {
		wrong = append(wrong, fmt.Sprintf("record: notes %q, and it stayed: %v", r.Notes, e.stays))
	}
	return wrong
}

// TestRecordsAgreeWithWhatHappened is E11, E13, E15 and C114: however an agent
// ends, its record, its outcome file and handsel's own status say what happened.
func TestRecordsAgreeWithWhatHappened(t *testing.T) {
	t.Parallel()
	many := part(endings, 1000)
	p := plays(t)
	rng := rand.New(rand.NewPCG(seed(t), 0))
	t.Run("runs", func(t *testing.T) {
		for n := range many {
			e := anEnding(rng)
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				t.Parallel()
				if wrong := e.one(p.of(t), n); len(wrong) > 0 {
					t.Errorf("%+v:\n\t%s", e, strings.Join(wrong, "\n\t"))
				}
			})
		}
	})
	if files, _ := filepath.Glob(filepath.Join(p.home, "runs", "*", "*", "events.ndjson")); len(files) != many {
		t.Errorf("%d runs have events, want %d", len(files), many)
	}
	p.settled()
}
