package config

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPressureIsOffUntilALimitIsSet(t *testing.T) { // P2
	p := newWorld(t).load().Pressure
	if p.On() || p.MaxHold != DefaultMaxHold || p.Fail != "open" || p.Margin != DefaultMargin {
		t.Errorf("by default: %+v", p)
	}
	p = newWorld(t).user("[pressure]\nmax_hold = 5\nfail = \"closed\"\nmargin = 0\ndisk_paths = [\"/x\"]\nmin_free_memory = 0\nmax_load_per_core = 0.0\n").load().Pressure
	if p.On() {
		t.Errorf("without a limit: %+v", p)
	}
	for _, line := range []string{`min_free_memory = 1`, `max_memory_pressure = 0.1`, `max_cpu_pressure = 1`, `max_io_pressure = 100`, `min_free_disk = "1B"`, `max_load_per_core = 2.5`} {
		if p := newWorld(t).user("[pressure]\n" + line).load().Pressure; !p.On() {
			t.Errorf("%s: %+v", line, p)
		}
	}
}

func TestPressureReadsEveryKey(t *testing.T) {
	w := newWorld(t).user(`
[pressure]
min_free_memory = "2GiB"
max_memory_pressure = 20
max_cpu_pressure = 80.5
max_io_pressure = 0
min_free_disk = 1000
disk_paths = ["/var//tmp/"]
max_load_per_core = 2.5
max_hold = "90s"
fail = "closed"
margin = 12.5
`).extra("[pressure]\nmax_hold = 5\n")
	s := w.load()
	want := PressureConf{
		MinFreeMemory: 2 << 30, MaxMemoryPressure: 20, MaxCPUPressure: 80.5, MinFreeDisk: 1000, DiskPaths: []string{"/var/tmp"}, MaxLoadPerCore: 2.5,
		MaxHold: 5 * time.Second, Fail: "closed", Margin: 12.5,
	}
	if !reflect.DeepEqual(s.Pressure, want) {
		t.Errorf("%+v", s.Pressure)
	}
	var shown []string
	for _, one := range s.Show() {
		if strings.HasPrefix(one.Key, "pressure.") {
			shown = append(shown, strings.TrimPrefix(one.Key, "pressure.")+" "+one.Value+" "+filepath.Base(one.From))
		}
	}
	if len(shown) != 10 || !slices.Contains(shown, "max_cpu_pressure 80.5 user.toml") || !slices.Contains(shown, `max_hold "5s" extra.toml`) {
		t.Errorf("shown: %q", shown)
	}
	for _, one := range newWorld(t).load().Show() {
		if strings.HasPrefix(one.Key, "pressure.") {
			t.Errorf("while it is off: %+v", one)
		}
	}
}

func TestMistakesInPressureAreNamed(t *testing.T) { // C7
	for line, why := range map[string]string{
		`min_free_memory = "2 gigs"`: "it must be a number of bytes",
		`min_free_memory = -1`:       "it must be a number of bytes",
		`min_free_memory = nan`:      "it must be a number of bytes",
		`max_memory_pressure = 101`:  "at most 100",
		`max_memory_pressure = "20"`: "it must be a plain number",
		`max_memory_pressure = nan`:  "it must be a plain number",
		`max_cpu_pressure = inf`:     "it must be a plain number",
		`max_cpu_pressure = -0.5`:    "it must be a plain number",
		`max_io_pressure = 1e1`:      "it must be a plain number",
		`max_io_pressure = 0x10`:     "it must be a plain number",
		`max_load_per_core = 1_000`:  "it must be a plain number",
		`max_load_per_core = true`:   "it must be a plain number",
		`max_hold = "soon"`:          "it must be a duration",
		`max_hold = -1`:              "it must be a duration",
		`fail = "maybe"`:             `it must be "open" or "closed"`,
		`margin = 51`:                "at most 50",
		`disk_paths = ["tmp"]`:       "absolute path",
		`disk_paths = "/tmp"`:        "it must be a list of texts",
		`memory = 5`:                 "unknown key; [pressure] has disk_paths, fail, margin,",
		`min_free_memory.x = 1`:      "unknown key",
	} {
		w := newWorld(t).user("[pressure]\n" + line + "\n")
		if bad := w.bad(); !strings.Contains(bad.Why, why) || bad.Line != 2 || !strings.Contains(bad.Caret, "^") || !strings.HasPrefix(bad.Key, "pressure.") {
			t.Errorf("%s: %+v", line, bad)
		}
	}
	if bad := newWorld(t).user("pressure = 5\n").bad(); !strings.Contains(bad.Why, "it is a table") {
		t.Errorf("%+v", bad)
	}
}

func TestSetWritesDecimals(t *testing.T) {
	w := newWorld(t)
	for value, want := range map[string]float64{"2.5": 2.5, " 3 ": 3, "0.25": 0.25} {
		if err := Set(w.env.UserFile, "pressure.max_load_per_core", value); err != nil {
			t.Errorf("%q: %v", value, err)
		} else if got := w.load().Pressure.MaxLoadPerCore; got != want {
			t.Errorf("%q became %v", value, got)
		}
	}
	for _, value := range []string{"nan", "-1", "02", "1e3", "1,5", ".5", "2."} {
		if err := Set(w.env.UserFile, "pressure.max_load_per_core", value); err == nil {
			t.Errorf("%q was written", value)
		}
	}
}
