package nest

import (
	"strings"
	"testing"
)

func TestOnlyEmptyAndZeroAreOutside(t *testing.T) {
	for value, want := range map[string]bool{"": false, "0": false, "1": true, "2": true, "x": true, "00": true, " ": true, "-1": true} {
		if carries(value) != want {
			t.Errorf("carries(%q) = %v, want %v (S24)", value, !want, want)
		}
	}
}

func TestDepthIsWhatWasInherited(t *testing.T) {
	before := inherited
	t.Cleanup(func() { inherited = before })
	for value, want := range map[string]int{"": 0, "0": 0, "1": 1, "7": 7, "x": 1, "-3": 1, "99999999999999999999": 1} {
		if inherited = value; Depth() != want {
			t.Errorf("Depth with %q = %d, want %d", value, Depth(), want)
		}
	}
	inherited = ""
	t.Setenv(Var, "1") // set later, for a child: it is not what was inherited (S25)
	if Depth() != 0 {
		t.Error("a depth set after the start changed Depth")
	}
	if ChildDepth(true) != 0 || ChildDepth(false) != 1 {
		t.Error("a seat is handed 0 and every other agent 1 (S24)")
	}
}

// TestRefusalIsOneCleanLine: names and values come from others.
func TestRefusalIsOneCleanLine(t *testing.T) {
	for _, e := range []*Inside{
		{Pid: 7, Name: "a\x1b[31m\nb", How: ByEnvironment, Depth: "1\r\n" + strings.Repeat("x", 500)},
		{Pid: 7, Name: "\xff\u202e", How: ByAncestorEnvironment, Depth: "\u2028"},
		{Pid: 7, Name: "handsel:d1", How: BySupervisor},
	} {
		text := e.Error()
		for _, r := range text {
			if r < ' ' || r == 0x7f || r == 0x2028 || r == 0x202e || r == 0xfffd {
				t.Errorf("%q has %q", text, r)
			}
		}
		if len(text) > 300 || !strings.Contains(text, "process 7 ") {
			t.Errorf("%q is too long or names no process", text)
		}
		if e.Code() != "nested" {
			t.Errorf("code is %q", e.Code())
		}
	}
}

func TestSupervisorsMarkIsReadByDepth(t *testing.T) {
	for name, want := range map[string]bool{
		"handsel:d1": true, "handsel:d2": true, "handsel:d0": false, "handsel:d": false, "handsel": false, "xhandsel:d1": false, "": false,
	} {
		if supervises(name) != want {
			t.Errorf("supervises(%q) = %v, want %v", name, !want, want)
		}
	}
}
