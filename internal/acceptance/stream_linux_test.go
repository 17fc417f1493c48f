package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// numbered is a claude that says a number in each of so many events, as fast as
// somebody reads them, and then gives its result.
const numbered = `#!/bin/sh
cat >/dev/null
echo '{"type":"system","subtype":"init","session_id":"s-1","model":"m"}'
seq 1 "$EVENTS" | sed 's/.*/{"type":"assistant","message":{"content":[{"type":"text","text":"number &"}]},"session_id":"s-1"}/'
echo '{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"all said","session_id":"s-1"}'
`

// TestStoppedReaderLosesNothing is E9: while handsel is stopped the agent waits,
// and when it goes on every event arrives, in its order, and the result.
func TestStoppedReaderLosesNothing(t *testing.T) {
	t.Parallel()
	const events = 20000
	p := here(t)
	bin := p.program("claude", numbered)
	p = p.with("PATH="+strings.TrimSuffix(bin, "/claude")+":/usr/bin:/bin", fmt.Sprint("EVENTS=", events))
	out, err := os.Create(p.file("said"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	c := p.handsel("agent", "--engine", "claude", "--json", "x")
	c.Stdout = out
	run := start(t, c)
	run.closeIn()
	eventually(t, "some events are there", func() bool {
		info, err := out.Stat()
		return err == nil && info.Size() > 64<<10
	})
	run.id.signal(syscall.SIGSTOP)
	eventually(t, "it is stopped", run.id.stopped)
	before, err := out.Stat()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Duration(part(1, 5)) * time.Second) // this is what is tried
	if after, err := out.Stat(); err != nil || after.Size() != before.Size() {
		t.Errorf("%d bytes came while it was stopped, %v", after.Size()-before.Size(), err)
	}
	run.id.signal(syscall.SIGCONT)
	dwindles(t, "all is said", func() int {
		info, err := out.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if run.ended() {
			return 0
		}
		return unknown - 1 - int(info.Size()) // how much there will be is not known
	})
	if end := run.wait(); end != "exit 0" {
		t.Fatalf("%s: %s", end, run.said())
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	next, result := 1, ""
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		var e struct{ Kind, Text string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		switch e.Kind {
		case "text":
			if e.Text != fmt.Sprint("number ", next) {
				t.Fatalf("%q where number %d belongs", e.Text, next)
			}
			next++
		case "result":
			result = e.Text
		}
	}
	if next != events+1 || result != "all said" {
		t.Errorf("%d of %d events, result %q", next-1, events, result)
	}
}
