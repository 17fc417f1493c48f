package pressure

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/handsel/handsel/internal/machine"
)

// Everything can be measured on this machine, or says what is missing.
func TestLookAtThisMachine(t *testing.T) {
	t.Parallel()
	s := Settings{MinFreeMemory: 1, MaxMemoryPressure: 100, MaxCPUPressure: 100, MaxIOPressure: 100, MinFreeDisk: 1, MaxLoadPerCore: 1e9, DiskPaths: []string{"/", t.TempDir() + "/not/made/yet"}}
	all := Look(s, t.TempDir())
	if len(all) != 6 {
		t.Fatalf("%+v", all)
	}
	for i, m := range all {
		_, psi := os.Stat("/proc/pressure/memory")
		switch {
		case m.Code != Codes[i] || m.Key == "" || m.Of == "" || m.Floor != (m.Code == Memory || m.Code == Disk):
			t.Errorf("measure %d is %+v", i, m)
		case m.Err != nil && psi != nil && strings.HasPrefix(m.Of, "/proc/pressure"):
		case m.Err != nil || m.Value < 0:
			t.Errorf("%s: %v, %v", m.Code, m.Value, m.Err)
		case m.Code == Memory && m.Value < 1<<20, m.Code == Disk && m.Value == 0:
			t.Errorf("nothing is left: %s", m.Say())
		}
	}
	text, err := machine.Source("meminfo", "/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	if total, err := available([]byte(strings.Replace(string(text), "MemTotal:", "MemAvailable:", 1))); err != nil || all[0].Value > float64(total) {
		t.Errorf("%v free of %v, %v", all[0].Value, total, err)
	}
}

// A tree is a process and what it started; one that is gone is left out.
func TestLargestTrees(t *testing.T) {
	t.Parallel()
	sleeper := exec.Command("sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleeper.Process.Kill(); _ = sleeper.Wait() }()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	trees := []Tree{{sleeper.Process.Pid, "child"}, {ended.Process.Pid, "ended"}, {os.Getpid(), "all of us"}}
	uses := Largest(trees, 3)
	if len(uses) != 2 || uses[0].Name != "all of us" || uses[1].Name != "child" || uses[1].Bytes <= 0 || uses[0].Bytes < uses[1].Bytes+resident(os.Getpid())/2 {
		t.Errorf("%+v", uses)
	}
	if got := Largest(trees, 1); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	if text := Cause(trees); !strings.HasPrefix(text, "the largest agents: all of us has ") || !strings.Contains(text, ", child has ") {
		t.Error(text)
	}
	if Cause(nil) != "" {
		t.Error("a cause of nothing")
	}
}
