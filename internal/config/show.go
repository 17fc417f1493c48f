package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Shown is one effective setting and where it comes from.
type Shown struct {
	Key   string `json:"key"`
	Value string `json:"value"` // as a file would have it
	From  string `json:"from"`  // a variable, a file, or "default"
	// InForce is false for a cap that a smaller one overrules.
	InForce bool `json:"in_force"`
}

// Show lists every setting in force with its source, in the order of the
// example file, and every cap, also those a smaller one overrules.
func (s *Settings) Show() []Shown {
	var out []Shown
	add := func(key string, value any) {
		out = append(out, Shown{key, tomlValue(value), cmp.Or(s.from[key], "default"), true})
	}
	add("leases_dir", s.LeasesDir)
	for _, pool := range slices.Sorted(maps.Keys(s.Caps)) {
		least, _ := s.Cap(pool)
		for _, c := range s.Caps[pool] {
			out = append(out, Shown{"pools." + pool, strconv.Itoa(c.N), c.From, c.N == least})
		}
	}
	add("admission.mode", s.Mode)
	add("admission.wait", s.Wait)
	add("admission.poll", s.Poll)
	add("admission.patience", s.Patience)
	add("runs.record", s.Record)
	add("runs.output_cap", s.OutputCap)
	add("runs.keep_days", s.KeepDays)
	add("runs.keep_bytes", s.KeepBytes)
	add("env.allow", s.EnvAllow)
	add("nesting.seats", s.Seats)
	for _, engine := range slices.Sorted(maps.Keys(s.Shim)) {
		key := "nesting.shim." + engine
		if engine == "*" {
			key = "nesting.shim"
		}
		add(key, s.Shim[engine])
	}
	add("nesting.interactive", s.Interactive)
	for _, name := range slices.Sorted(maps.Keys(s.EngineOf)) {
		s.showEngine(name, add)
	}
	s.showPressure(add)
	s.showDispatch(add)
	out = append(out, s.showNotify()...)
	s.showQuota(add)
	add("review.lanes", s.Review.Lanes)
	add("review.checks", s.Review.Checks)
	add("review.require_checks", !s.Review.Lenient)
	add("review.check_pools", s.Review.Pools)
	add("review.check_timeout", s.Review.Timeout)
	add("review.verify", s.Review.Verify)
	for _, pool := range slices.Sorted(maps.Keys(s.GateRules)) {
		add("gate.rules."+pool, s.GateRules[pool])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Later)) {
		out = append(out, Shown{name, "(a table)", s.from[name], true})
	}
	return out
}

// showEngine lists what is set of one engine.
func (s *Settings) showEngine(name string, add func(string, any)) {
	e := s.EngineOf[name]
	for _, f := range []struct {
		key   string
		value any
	}{
		{"names", e.Names}, {"confine", e.Confine}, {"confine_ports", e.ConfinePorts}, {"end_on", e.EndOn}, {"min_gap", e.MinGap}, {"result_grace", e.ResultGrace},
		{"binary", e.Binary}, {"args", e.Args}, {"stdin", e.Stdin}, {"stream", e.Stream}, {"confines", e.Confines}, {"light_args", e.LightArgs},
	} {
		if key := "engine." + name + "." + f.key; s.from[key] != "" {
			add(key, f.value)
		}
	}
}

// tomlValue writes a value as a file would have it, in ASCII.
func tomlValue(v any) string {
	switch v := v.(type) {
	case string:
		return tomlText(v)
	case time.Duration:
		return tomlText(v.String())
	case []string:
		quoted := make([]string, len(v))
		for i, s := range v {
			quoted[i] = tomlText(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case [][]string:
		lines := make([]string, len(v))
		for i, argv := range v {
			lines[i] = tomlValue(argv)
		}
		return "[" + strings.Join(lines, ", ") + "]"
	case []uint16:
		numbers := make([]string, len(v))
		for i, n := range v {
			numbers[i] = strconv.Itoa(int(n))
		}
		return "[" + strings.Join(numbers, ", ") + "]"
	}
	return fmt.Sprint(v)
}

// tomlText writes a basic string. Go's quoting is not TOML's: it has \a, \v and \x.
func tomlText(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r >= ' ' && r <= '~':
			out.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&out, `\U%08x`, r)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	out.WriteByte('"')
	return out.String()
}
