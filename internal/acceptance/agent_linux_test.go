package acceptance

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// asked starts an agent whose claude does what a script says.
func (p *place) asked(script string, flags ...string) *process {
	p.t.Helper()
	c := start(p.t, p.with("PLAN="+p.write("plan", script)).handsel(append(append([]string{"agent", "--engine", "claude"}, flags...), "--prompt-file", p.write("prompt", "the-secret-prompt"))...))
	c.closeIn()
	return c
}

// holds lists the files below the home in which a text is.
func (p *place) holds(text string) (files []string) {
	p.t.Helper()
	err := filepath.WalkDir(p.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), text) {
			files = append(files, d.Name())
		}
		return err
	})
	if err != nil {
		p.t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// TestAgentsSecretsAreNowhere is C137 for a built command line: prompt, standing
// instructions and key are in no process's arguments. Prompt and key are in no
// file but what the agent itself printed, the instructions only while it runs.
func TestAgentsSecretsAreNowhere(t *testing.T) {
	t.Parallel()
	p := plays(t).with("ANTHROPIC_API_KEY=sk-test-123456", "HANDSEL_MAX_AGENTS=1")
	if err := os.Mkdir(p.file("profiles"), 0o755); err != nil {
		t.Fatal(err)
	}
	p.write("profiles/reviewer.md", "---\nengine: claude\n---\nthe-secret-instructions\n")
	secrets := []string{"the-secret-prompt", "sk-test-123456", "the-secret-instructions"}
	gate, seen := p.file("gate"), p.file("seen")
	if err := unix.Mkfifo(gate, 0o666); err != nil {
		t.Fatal(err)
	}
	_ = os.Chmod(gate, 0o666)
	c := p.asked("cat >"+seen+"\nread go <"+gate+"\necho $ANTHROPIC_API_KEY\ncat "+seen+"\necho\nprintf '%s\\n' '"+results["answer"]+"'\n", "--profile", "reviewer")
	until(t, "it has its prompt", func() string { text, _ := os.ReadFile(seen); return string(text) }, secrets[0])
	for _, secret := range secrets {
		if shown := processes(func(pid int) bool {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			return strings.Contains(string(line), secret)
		}); len(shown) != 0 {
			t.Errorf("%q is on the command line of %v", secret, shown)
		}
	}
	if files := p.holds(secrets[2]); len(files) != 1 {
		t.Errorf("while it runs, its instructions are in %q", files)
	}
	status, _ := must(t, "exit 0", p.handsel("status", "--json"))
	if err := os.WriteFile(gate, nil, 0); err != nil {
		t.Fatal(err)
	}
	if end := c.wait(); end != "exit 0" || c.printed() != "The answer.\n" {
		t.Errorf("%s: %q, %q", end, c.printed(), c.said())
	}
	runs, _ := must(t, "exit 0", p.handsel("runs", "--json"))
	for i, want := range []string{"stdout", "stdout", ""} {
		if files := strings.Join(p.holds(secrets[i]), " "); files != want {
			t.Errorf("%q is in %q, want %q", secrets[i], files, want)
		}
		if strings.Contains(status+runs+c.said(), secrets[i]) {
			t.Errorf("%q was said", secrets[i])
		}
	}
	p.settled()
}

// TestLimitsAreShownAndNamed is C149: each limit is shown before it hits, and ends
// the run with a reason of its own and all of its tree; what exceeds the cap of
// the output ends nothing.
func TestLimitsAreShownAndNamed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, flag, shown, limits, code, kind string
	}{
		{"total", "--timeout=15", "15s in all", `{"timeout_s":15}`, "limit_total", ""},
		{"idle", "--idle=15", "idle 15s", `{"idle_s":15}`, "limit_idle", "stalled"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := plays(t).with("HANDSEL_MAX_AGENTS=1")
			c := p.asked("cat >/dev/null\nsetsid sleep 600 &\nsleep 600\n", tt.flag)
			var s struct {
				Agents []struct{ Limits json.RawMessage }
			}
			eventually(t, "it is shown with its limit", func() bool {
				out, _ := must(t, "exit 0", p.handsel("status", "--json"))
				return json.Unmarshal([]byte(out), &s) == nil && len(s.Agents) == 1 && len(s.Agents[0].Limits) > 0
			})
			var limits strings.Builder
			for _, r := range string(s.Agents[0].Limits) {
				if r != ' ' && r != '\n' {
					limits.WriteRune(r)
				}
			}
			if limits.String() != tt.limits {
				t.Errorf("its limits are shown as %s", limits.String())
			}
			for _, verb := range [][]string{{"status"}, {"show", "engine:claude"}} {
				if out, _ := must(t, "exit 0", p.handsel(verb...)); !strings.Contains(out, tt.shown) {
					t.Errorf("%q does not show its limit: %s", verb, out)
				}
			}
			if end := c.wait(); end != "exit 124" {
				t.Errorf("%s: %q", end, c.said())
			}
			oneLine(t, c.said(), tt.flag[:strings.IndexByte(tt.flag, '=')])
			var list struct {
				Runs []struct {
					Outcome, Result, Kind string
					Reason                struct{ Code string }
				}
			}
			out, _ := must(t, "exit 0", p.handsel("runs", "--json"))
			if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Runs) != 1 {
				t.Fatal(err, out)
			}
			if r := list.Runs[0]; r.Outcome != "timed_out" || r.Result != "failed" || r.Kind != tt.kind || r.Reason.Code != tt.code {
				t.Errorf("its record says %+v", r)
			}
			p.settled()
		})
	}
	t.Run("output", func(t *testing.T) {
		t.Parallel()
		p := plays(t)
		q := p.config("[runs]\noutput_cap = \"1MB\"\n")
		c := q.asked("cat >/dev/null\nhead -c 20000000 /dev/zero | tr '\\0' x\necho\nprintf '%s\\n' '" + results["answer"] + "'\n")
		if end := c.wait(); end != "exit 0" || c.printed() != "The answer.\n" {
			t.Errorf("%s: %q, %q", end, c.printed(), c.said())
		}
		var list struct{ Runs []told }
		out, _ := must(t, "exit 0", q.handsel("runs", "--json"))
		if err := json.Unmarshal([]byte(out), &list); err != nil || len(list.Runs) != 1 {
			t.Fatal(err, out)
		}
		o, total := list.Runs[0].Output, int64(0)
		files, _ := filepath.Glob(filepath.Join(q.home, "runs", "*", "*", "*"))
		for _, f := range files {
			if info, err := os.Stat(f); err == nil {
				total += info.Size()
			}
		}
		if o == nil || o.Stdout < 20000000 || o.Truncated < 18900000 || total > 1<<20+32<<10 {
			t.Errorf("%+v, and %d bytes are stored", o, total)
		}
	})
}

// TestAgentOnAFullDisk is C089 and E14: the disk is full while it works. It is
// not ended, its answer is found, there is one warning, and its record says where
// what is kept of it ends.
func TestAgentOnAFullDisk(t *testing.T) {
	if !isRoot {
		t.Skip("only root can mount a small file system; the user's half is this test under root, which runs handsel as uid 65534")
	}
	t.Parallel()
	p := plays(t)
	said := `{"type":"assistant","message":{"content":[{"type":"text","text":"` + strings.Repeat("x", 200) + `"}]}}`
	plan := p.write("plan", "cat >/dev/null\nyes '"+said+"' | head -n 5000\nprintf '%s\\n' '"+results["answer"]+"'\n")
	script := `"$1" agent --engine claude x; echo status=$?
		echo; "$1" runs --json; wc -l <"$(echo "$2"/runs/*/*/events.ndjson)"`
	c := p.with("PLAN="+plan).inMount(fmt.Sprintf("size=512k,mode=0700,uid=%d", p.uid), p.home, "true", "sh", "-c", script, "sh", p.bin, p.home)
	out, errs := must(t, "exit 0", c)
	if !strings.HasPrefix(out, "The answer.\nstatus=0\n") {
		t.Errorf("it printed %.200q", out)
	}
	oneLine(t, errs, "warning", "stdout to byte ", "events to byte ", "no space left")
	var list struct{ Runs []told }
	if err := json.NewDecoder(strings.NewReader(out[strings.Index(out, "{"):])).Decode(&list); err != nil || len(list.Runs) != 1 {
		t.Fatalf("%v: %.300q", err, out)
	}
	r := list.Runs[0]
	if r.State != "ended" || r.Result != "succeeded" || r.Output == nil || r.Output.Truncated == 0 {
		t.Errorf("its record says %+v, %+v", r, r.Output)
	}
	if notes := strings.Join(r.Notes, "\n"); strings.Count(notes, "no space left") != 1 || !strings.Contains(notes, "events to byte ") {
		t.Errorf("its notes are %q", r.Notes)
	}
}
