package config

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/home"
)

// kind is what a key holds.
type kind int

const (
	capacity kind = iota // a cap: plain digits
	number               // a whole number: plain digits
	text
	yes
	duration // a text such as "90s", or a number of seconds
	size     // a number of bytes, or a text such as "64MiB"
	decimal  // a plain number, with a fraction or without
	words    // a list of texts
	ports    // a list of TCP ports
	commands // a list of commands, each a list of texts
	open     // anything: read by another part of the program
)

// key is one key a file may have. In its path, * stands for one name, ** for
// anything below.
type key struct {
	path  []string
	kind  kind
	check func(v any) (why string)
	set   func(s *Settings, path []string, v any)
}

func k(path string, kind kind, check func(any) string, set func(*Settings, []string, any)) *key {
	return &key{strings.Split(path, "."), kind, check, set}
}

// schema is every key there is (C7). The example file, Set and the reader all go
// by it.
var schema = []*key{
	k("leases_dir", text, absolute, func(s *Settings, _ []string, v any) { s.LeasesDir = expand(v.(string)) }),
	k("pools.*", capacity, nil, nil), // joins a minimum instead of overriding
	k("admission.mode", text, oneOf("waiter", "dispatcher"), func(s *Settings, _ []string, v any) { s.Mode = v.(string) }),
	k("admission.wait", duration, nil, func(s *Settings, _ []string, v any) { s.Wait, s.WaitSet = v.(time.Duration), true }),
	k("admission.poll", duration, positive, func(s *Settings, _ []string, v any) { s.Poll = v.(time.Duration) }),
	k("admission.patience", duration, nil, func(s *Settings, _ []string, v any) { s.Patience = v.(time.Duration) }),
	k("runs.record", yes, nil, func(s *Settings, _ []string, v any) { s.Record = v.(bool) }),
	k("runs.output_cap", size, positive, func(s *Settings, _ []string, v any) { s.OutputCap = v.(int64) }),
	k("runs.keep_days", number, nil, func(s *Settings, _ []string, v any) { s.KeepDays = v.(int) }),
	k("runs.keep_bytes", size, nil, func(s *Settings, _ []string, v any) { s.KeepBytes = v.(int64) }),
	k("env.allow", words, nil, func(s *Settings, _ []string, v any) { s.EnvAllow = v.([]string) }),
	k("nesting.seats", words, nil, func(s *Settings, _ []string, v any) { s.Seats = v.([]string) }),
	k("nesting.shim", text, oneOf("refuse", "pass"), func(s *Settings, _ []string, v any) { s.Shim["*"] = v.(string) }),
	k("nesting.shim.*", text, oneOf("refuse", "pass"), func(s *Settings, p []string, v any) { s.Shim[p[2]] = v.(string) }),
	k("nesting.interactive", text, oneOf("heavy", "light-count"), func(s *Settings, _ []string, v any) { s.Interactive = v.(string) }),
	k("engine.*.names", words, nil, engine(func(e *EngineConf, v any) { e.Names = v.([]string) })),
	k("engine.*.confine", text, oneOf("os", "none"), engine(func(e *EngineConf, v any) { e.Confine = v.(string) })),
	k("engine.*.confine_ports", ports, nil, engine(func(e *EngineConf, v any) { e.ConfinePorts = v.([]uint16) })),
	k("engine.*.end_on", words, eachOf("limit", "throttle", "login", "permission"), engine(func(e *EngineConf, v any) { e.EndOn = v.([]string) })),
	k("engine.*.min_gap", duration, nil, engine(func(e *EngineConf, v any) { e.MinGap = v.(time.Duration) })),
	k("engine.*.result_grace", duration, nil, engine(func(e *EngineConf, v any) { e.ResultGrace = v.(time.Duration) })),
	k("engine.*.binary", text, executable, engine(func(e *EngineConf, v any) { e.Binary = expandHome(v.(string)) })),
	k("engine.*.args", words, placeholders, engine(func(e *EngineConf, v any) { e.Args = v.([]string) })),
	k("engine.*.stdin", text, oneOf("prompt", "none"), engine(func(e *EngineConf, v any) { e.Stdin = v.(string) })),
	k("engine.*.stream", text, oneOf("claude", "codex", "gemini", "pi", "none"), engine(func(e *EngineConf, v any) { e.Stream = v.(string) })),
	k("engine.*.confines", text, oneLine, engine(func(e *EngineConf, v any) { e.Confines = v.(string) })),
	k("engine.*.light_args", words, plainWords, engine(func(e *EngineConf, v any) { e.LightArgs = v.([]string) })),
	k("pressure.min_free_memory", size, nil, func(s *Settings, _ []string, v any) { s.Pressure.MinFreeMemory = v.(int64) }),
	k("pressure.max_memory_pressure", decimal, percent, func(s *Settings, _ []string, v any) { s.Pressure.MaxMemoryPressure = v.(float64) }),
	k("pressure.max_cpu_pressure", decimal, percent, func(s *Settings, _ []string, v any) { s.Pressure.MaxCPUPressure = v.(float64) }),
	k("pressure.max_io_pressure", decimal, percent, func(s *Settings, _ []string, v any) { s.Pressure.MaxIOPressure = v.(float64) }),
	k("pressure.min_free_disk", size, nil, func(s *Settings, _ []string, v any) { s.Pressure.MinFreeDisk = v.(int64) }),
	k("pressure.disk_paths", words, absolutes, func(s *Settings, _ []string, v any) { s.Pressure.DiskPaths = expandAll(v.([]string)) }),
	k("pressure.max_load_per_core", decimal, nil, func(s *Settings, _ []string, v any) { s.Pressure.MaxLoadPerCore = v.(float64) }),
	k("pressure.max_hold", duration, nil, func(s *Settings, _ []string, v any) { s.Pressure.MaxHold = v.(time.Duration) }),
	k("pressure.fail", text, oneOf("open", "closed"), func(s *Settings, _ []string, v any) { s.Pressure.Fail = v.(string) }),
	k("pressure.margin", decimal, upTo(50), func(s *Settings, _ []string, v any) { s.Pressure.Margin = v.(float64) }),
	k("dispatch.driver", words, aCommand, func(s *Settings, _ []string, v any) { s.Dispatch.Driver = v.([]string) }),
	k("dispatch.starting", number, fewOffers, func(s *Settings, _ []string, v any) { s.Dispatch.Starting = v.(int) }),
	k("dispatch.metrics", text, loopback, func(s *Settings, _ []string, v any) { s.Dispatch.Metrics = v.(string) }),
	// Of each [[notify]]; they are put together as they are read.
	k("notify.on", words, eachOf(NotifyKinds...), nil),
	k("notify.command", words, aCommand, nil),
	k("notify.timeout", duration, positive, nil),
	k("quota.*.auto_resume", yes, nil, quota(func(q *QuotaConf, v any) { q.NoResume = !v.(bool) })),
	k("quota.*.max_park", duration, positive, quota(func(q *QuotaConf, v any) { q.MaxPark = v.(time.Duration) })),
	k("quota.*.command", words, command, quota(func(q *QuotaConf, v any) { q.Command = v.([]string) })),
	k("quota.*.every", duration, positive, quota(func(q *QuotaConf, v any) { q.Every = v.(time.Duration) })),
	k("quota.*.timeout", duration, positive, quota(func(q *QuotaConf, v any) { q.Timeout = v.(time.Duration) })),
	k("accounts.*.*.env.*", text, plainText, accountEnv),
	k("review.lanes", words, nil, func(s *Settings, _ []string, v any) { s.Review.Lanes = v.([]string) }),
	k("review.checks", commands, nil, func(s *Settings, _ []string, v any) { s.Review.Checks = v.([][]string) }),
	k("review.require_checks", yes, nil, func(s *Settings, _ []string, v any) { s.Review.Lenient = !v.(bool) }),
	k("review.check_pools", words, poolNames, func(s *Settings, _ []string, v any) { s.Review.Pools = v.([]string) }),
	k("review.check_timeout", duration, positive, func(s *Settings, _ []string, v any) { s.Review.Timeout = v.(time.Duration) }),
	k("review.verify", words, program, func(s *Settings, _ []string, v any) { s.Review.Verify = v.([]string) }),
	k("gate.rules.*", words, heavyCommands, func(s *Settings, p []string, v any) { s.GateRules[p[2]] = v.([]string) }),
	// The table below is kept as it is, so that one file serves programs of
	// several versions.
	k("credentials.*.**", open, nil, nil),
}

// arrays are the tables written [[name]].
var arrays = map[string]bool{"notify": true}

func engine(set func(*EngineConf, any)) func(*Settings, []string, any) {
	return func(s *Settings, path []string, v any) {
		e := s.EngineOf[path[1]]
		set(&e, v)
		s.EngineOf[path[1]] = e
	}
}

func oneOf(allowed ...string) func(any) string {
	return func(v any) string {
		if slices.Contains(allowed, v.(string)) {
			return ""
		}
		return `it must be "` + strings.Join(allowed, `" or "`) + `"`
	}
}

// poolNames asks for names of pools, at least one.
func poolNames(v any) string {
	names := v.([]string)
	if len(names) == 0 {
		return "it must name a pool"
	}
	for _, name := range names {
		if !ValidName(name) {
			return "a pool's name is a-z, 0-9, _ and -, at most 63, not beginning with a sign"
		}
	}
	return ""
}

func positive(v any) string {
	switch v := v.(type) {
	case time.Duration:
		if v > 0 {
			return ""
		}
	case int64:
		if v > 0 {
			return ""
		}
	}
	return "it must be more than 0"
}

// absolute asks for a path that means the same to every process; ~/ is the
// passwd home (C6).
func absolute(v any) string {
	path := v.(string)
	switch {
	case strings.HasPrefix(path, "~/"):
		if _, err := home.UserHome(); err != nil {
			return "~ cannot be told: " + escape(err.Error())
		}
		return ""
	case !filepath.IsAbs(path):
		return "it must be an absolute path"
	case strings.ContainsRune(path, 0):
		return "it must not contain a NUL"
	}
	return ""
}

func expand(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if dir, err := home.UserHome(); err == nil {
			return filepath.Join(dir, rest)
		}
	}
	return filepath.Clean(path)
}

// find is the key of that path, nil if there is none.
func find(path []string) *key {
	for _, k := range schema {
		if n := k.covers(path); n == len(path) && (len(k.path) == n || k.path[len(k.path)-1] == "**" && n >= len(k.path)) {
			return k
		}
	}
	return nil
}

// covers is how many parts of path agree with the key's.
func (k *key) covers(path []string) int {
	for i, part := range path {
		switch {
		case i >= len(k.path) && k.path[len(k.path)-1] != "**":
			return i
		case i >= len(k.path)-1 && k.path[len(k.path)-1] == "**":
			return len(path)
		case k.path[i] != "*" && k.path[i] != part:
			return i
		}
	}
	return len(path)
}

// isTable tells whether a path names a table that may hold keys.
func isTable(path []string) bool {
	for _, k := range schema {
		if k.covers(path) == len(path) && (len(k.path) > len(path) || k.kind == open) {
			return true
		}
	}
	return false
}

// known lists the keys there are at the place of the last part of path.
func known(path []string) string {
	above := path[:len(path)-1]
	names := map[string]bool{}
	for _, k := range schema {
		if len(k.path) > len(above) && k.covers(above) == len(above) {
			if name := k.path[len(above)]; name != "*" && name != "**" && badEngineKey(append(slices.Clip(above), name)) == "" {
				names[name] = true
			}
		}
	}
	list := strings.Join(slices.Sorted(maps.Keys(names)), ", ")
	if len(above) == 0 {
		return list
	}
	return "[" + strings.Join(above, ".") + "] has " + list
}
