package config

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestExampleSetsNothingAndNamesEveryKey(t *testing.T) {
	if p := parse("/example", example); len(p.bads) > 0 || len(p.sets) > 0 || len(p.caps) > 0 {
		t.Errorf("the example sets something: %+v", p)
	}
	setting := regexp.MustCompile(`(?m)^# (\[\[?[a-z.]+\]\]?|[a-z_]+ = .*)$`)
	p := parse("/example", []byte(setting.ReplaceAllString(string(example), "$1")))
	for _, bad := range p.bads {
		t.Error(bad)
	}
	seen := map[*key]bool{}
	for _, a := range p.sets {
		seen[a.key] = true
	}
	for _, k := range schema {
		name := strings.Join(k.path, ".")
		if k.set != nil && !seen[k] && name != "nesting.shim.*" { // the other form of nesting.shim
			t.Errorf("the example does not show %s", name)
		}
	}
	if len(p.notify) != 1 || len(p.notify[0].On) == 0 || p.notify[0].Timeout != DefaultNotifyTimeout {
		t.Errorf("the example shows %+v", p.notify)
	}
	if len(p.caps) == 0 {
		t.Error("the example shows no cap")
	}
}

func TestInitNeverReplaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "config.toml")
	if err := Init(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Init(path); !errors.Is(err, ErrExists) {
		t.Errorf("Init = %v, want ErrExists", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "mine" {
		t.Errorf("Init wrote %q", data)
	}
	os.Remove(path)
	os.Symlink(path+".elsewhere", path)
	if err := Init(path); !errors.Is(err, ErrExists) {
		t.Errorf("Init = %v over a dangling link, want ErrExists", err)
	}
}

func TestSetChangesOneKeyAndNothingElse(t *testing.T) {
	for _, tt := range []struct{ name, old, key, value, want string }{
		{"value replaced", "# c\n[pools]\nheavy  =  3 # why\nall = 8\n", "pools.heavy", "4", "# c\n[pools]\nheavy  =  4 # why\nall = 8\n"},
		{"added to its table", "[pools]\nall = 8\n\n# about admission\n[admission]\nwait = 5", "pools.heavy", "2",
			"[pools]\nall = 8\nheavy = 2\n\n# about admission\n[admission]\nwait = 5"},
		{"added to the last table", "[admission]\nwait = 5", "admission.mode", "dispatcher", "[admission]\nwait = 5\nmode = \"dispatcher\"\n"},
		{"added to an empty table", "[pools]\n[admission]\n", "pools.all", "1", "[pools]\nall = 1\n[admission]\n"},
		{"new table", "# mine\n", "admission.mode", "dispatcher", "# mine\n\n[admission]\nmode = \"dispatcher\"\n"},
		{"new file", "", "admission.mode", "dispatcher", "[admission]\nmode = \"dispatcher\"\n"},
		{"dotted keys", "admission.wait = 5\n[pools]\nall = 1\n", "admission.mode", "waiter", "admission.wait = 5\nadmission.mode = \"waiter\"\n[pools]\nall = 1\n"},
		{"inline value", "admission = { wait = 5, mode = \"waiter\" }\n", "admission.mode", "dispatcher", "admission = { wait = 5, mode = \"dispatcher\" }\n"},
		{"top key", "# head\n\n[pools]\nall = 1\n", "leases_dir", "/srv/l", "# head\n\nleases_dir = \"/srv/l\"\n\n[pools]\nall = 1\n"},
		{"crlf", "[pools]\r\nall = 8\r\n", "pools.heavy", "2", "[pools]\r\nall = 8\r\nheavy = 2\r\n"},
		{"array over lines", "[nesting]\nseats = [\n  \"a\", # first\n  \"b\",\n]\nshim = \"pass\"\n", "nesting.seats", "c, d", "[nesting]\nseats = [\"c\", \"d\"]\nshim = \"pass\"\n"},
		{"duration", "", "admission.wait", "90s", "[admission]\nwait = \"90s\"\n"},
		{"seconds", "", "admission.wait", "90", "[admission]\nwait = \"90\"\n"},
		{"bool", "", "runs.record", "true", "[runs]\nrecord = true\n"},
		{"size", "", "runs.output_cap", "1MiB", "[runs]\noutput_cap = \"1MiB\"\n"},
		{"leading zeros", "", "pools.all", " 007 ", "[pools]\nall = 7\n"},
		{"quotes and newlines", "", "nesting.seats", "a\"b", "[nesting]\nseats = [\"a\\\"b\"]\n"},
		{"engine", "", "engine.claude.end_on", "login", "[engine.claude]\nend_on = [\"login\"]\n"},
		{"taken out", "[pools]\nall = 8\nheavy = 2 # gone too\n# stays\n", "pools.heavy", "", "[pools]\nall = 8\n# stays\n"},
		{"nothing to take out", "[pools]\nall = 8\n", "pools.heavy", "", "[pools]\nall = 8\n"},
		{"sub-table first", "[nesting.shim]\nclaude = \"pass\"\n", "nesting.seats", "a", "[nesting.shim]\nclaude = \"pass\"\n\n[nesting]\nseats = [\"a\"]\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "new", "config.toml")
			if tt.old != "" {
				os.Mkdir(filepath.Dir(path), 0o700)
				if err := os.WriteFile(path, []byte(tt.old), 0o640); err != nil {
					t.Fatal(err)
				}
			}
			if err := Set(path, tt.key, tt.value); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil || string(data) != tt.want {
				t.Errorf("the file holds\n%s\nwant\n%s (%v)", data, tt.want, err)
			}
			info, _ := os.Stat(path)
			if want := map[bool]os.FileMode{true: 0o600, false: 0o640}[tt.old == ""]; info.Mode().Perm() != want {
				t.Errorf("mode %v, want %v", info.Mode().Perm(), want)
			}
		})
	}
}

func TestSetRefusesAndLeavesTheFile(t *testing.T) {
	for _, tt := range []struct{ name, old, key, value string }{
		{"unknown key", "", "admission.wate", "5"},
		{"a table", "", "pools", "5"},
		{"unknown table", "", "x.y", "5"},
		{"bad cap", "[pools]\nheavy = 3\n", "pools.heavy", "thirty"},
		{"negative cap", "[pools]\nheavy = 3\n", "pools.heavy", "-1"},
		{"overflow", "[pools]\nheavy = 3\n", "pools.heavy", "99999999999999999999"},
		{"bad mode", "", "admission.mode", "queue"},
		{"bad bool", "", "runs.record", "yes"},
		{"bad pool name", "", "pools.claude-code", "3"},
		{"clash", "[pools]\na-b = 1\n", "pools.a_b", "2"},
		{"broken file", "[pools\n", "pools.heavy", "2"},
		{"a mistake elsewhere", "[pools]\nall = \"x\"\n", "pools.heavy", "2"},
		{"inline table", "pools = { all = 1 }\n", "pools.heavy", "2"},
		{"take out of an inline table", "pools = { all = 1 }\n", "pools.all", ""},
		{"later table", "", "credentials.claude.command", "x"},
		{"list of tables", "", "notify.on", "failed"},
		{"injection", "", "admission.mode", "waiter\"\n[pools]\nall = 1\n#"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.toml")
			if tt.old != "" {
				if err := os.WriteFile(path, []byte(tt.old), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := Set(path, tt.key, tt.value)
			if _, ok := errors.AsType[*Bad](err); !ok {
				t.Errorf("Set = %v, want *Bad", err)
			}
			if data, _ := os.ReadFile(path); string(data) != tt.old {
				t.Errorf("the file holds %q", data)
			}
			if left, _ := os.ReadDir(filepath.Dir(path)); len(left) > 1 {
				t.Errorf("%d files are left", len(left))
			}
		})
	}
}

func TestCheckListsEveryMistake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.toml")
	if got := Check(path); len(got) != 0 {
		t.Errorf("Check = %v of a missing file", got)
	}
	if err := os.WriteFile(path, []byte("x = 1\n[pools]\nheavy = -1\na-b = 1\na_b = 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Check(path); len(got) != 3 {
		t.Errorf("Check = %v, want 3", got)
	}
}
