package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// QuotaConf is what a file says of an engine's quota (P3). Zero is not set.
type QuotaConf struct {
	NoResume bool          // a park stays until it is taken back, and no login is probed
	MaxPark  time.Duration // the longest park
	Command  []string      // is asked before a start, without a shell; nil: nobody is
	Every    time.Duration // how long its answer is kept
	Timeout  time.Duration // of one question
}

// The defaults of a command that is asked.
const (
	DefaultEvery   = time.Minute
	DefaultTimeout = 10 * time.Second
)

// AccountConf is one account of an engine (P5): what makes the engine use it.
type AccountConf struct {
	Env map[string]string // of its agents, over what they would get
}

func quota(set func(*QuotaConf, any)) func(*Settings, []string, any) {
	return func(s *Settings, path []string, v any) {
		q := s.QuotaOf[path[1]]
		set(&q, v)
		s.QuotaOf[path[1]] = q
	}
}

// account makes the account that a table or a key of it names.
func account(s *Settings, path []string) AccountConf {
	if s.AccountsOf[path[1]] == nil {
		s.AccountsOf[path[1]] = map[string]AccountConf{}
	}
	a := s.AccountsOf[path[1]][path[2]]
	if a.Env == nil {
		a.Env = map[string]string{}
	}
	s.AccountsOf[path[1]][path[2]] = a
	return a
}

func accountEnv(s *Settings, path []string, v any) {
	account(s, path).Env[path[4]] = expandHome(v.(string))
}

// accountTable is the header of an account that sets nothing.
var accountTable = &key{path: []string{"accounts", "*", "*"}, set: func(s *Settings, path []string, _ any) { account(s, path) }}

// plainText asks for what a variable can hold.
func plainText(v any) string {
	if strings.ContainsRune(v.(string), 0) {
		return "it must not contain a NUL"
	}
	if strings.HasPrefix(v.(string), "~/") {
		return absolute(v)
	}
	return ""
}

func command(v any) string {
	list := v.([]string)
	if len(list) == 0 || list[0] == "" || strings.Contains(strings.Join(list, ""), "\x00") {
		return `it must be a list of words such as ["check-quota", "claude"]; no shell sees them`
	}
	return ""
}

// badQuotaKey says why a path below quota or accounts names nothing.
func badQuotaKey(path []string) string {
	if len(path) < 2 || path[0] != "quota" && path[0] != "accounts" {
		return ""
	}
	if why := badEngineName(path[1]); why != "" {
		return why
	}
	if path[0] != "accounts" || len(path) < 3 {
		return ""
	}
	if !ValidName(path[2]) {
		return "an account's name is 1 to 63 of a-z 0-9 _ -, the first a letter or digit"
	}
	if len(path) == 5 {
		switch {
		case !isName(path[4]):
			return "no variable can be called so"
		case strings.HasPrefix(path[4], "HANDSEL_"):
			return "a name that begins with HANDSEL_ is ours to set"
		}
	}
	return ""
}

// quotaProblems finds tables of engines that there are not, once all files are
// read: they would bind nobody.
func (s *Settings) quotaProblems() (problems []error) {
	bad := func(top, engine, below string) {
		if _, own := s.EngineOf[engine]; own || slices.Contains(builtins[2:], engine) {
			return
		}
		from := ""
		for _, key := range slices.Sorted(maps.Keys(s.from)) {
			if strings.HasPrefix(key, top+"."+engine+".") {
				from = s.from[key]
			}
		}
		problems = append(problems, &Bad{File: from, Key: top + "." + engine + below, Why: fmt.Sprintf("there is no engine %q", engine)})
	}
	for _, engine := range slices.Sorted(maps.Keys(s.QuotaOf)) {
		bad("quota", engine, "")
	}
	for _, engine := range slices.Sorted(maps.Keys(s.AccountsOf)) {
		bad("accounts", engine, "")
	}
	return problems
}

// showQuota lists what is set of quotas and accounts. What an account's variables
// hold is not repeated: it need not be fit for everybody's eyes.
func (s *Settings) showQuota(add func(string, any)) {
	for _, engine := range slices.Sorted(maps.Keys(s.QuotaOf)) {
		q := s.QuotaOf[engine]
		for _, f := range []struct {
			key   string
			value any
		}{{"auto_resume", !q.NoResume}, {"max_park", q.MaxPark}, {"command", q.Command}, {"every", q.Every}, {"timeout", q.Timeout}} {
			if key := "quota." + engine + "." + f.key; s.from[key] != "" {
				add(key, f.value)
			}
		}
	}
	for _, engine := range slices.Sorted(maps.Keys(s.AccountsOf)) {
		for _, name := range slices.Sorted(maps.Keys(s.AccountsOf[engine])) {
			for _, variable := range slices.Sorted(maps.Keys(s.AccountsOf[engine][name].Env)) {
				add("accounts."+engine+"."+name+".env."+variable, "(set)")
			}
		}
	}
}
