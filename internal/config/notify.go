package config

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// DefaultNotifyTimeout is how long a command of [[notify]] may take.
const DefaultNotifyTimeout = 10 * time.Second

// Notify is one [[notify]]: a command that is told of changes of state (P13).
type Notify struct {
	On      []string // kinds of NotifyKinds, at least one
	Command []string // run without a shell
	Timeout time.Duration
	From    string // the file that says so
}

// NotifyKinds are the changes of state that a command can be told of.
var NotifyKinds = []string{
	"started", "succeeded", "failed", "lost", "displaced", "cancelled", "limit", "login", "orphaned", "held",
	"review", "accepted", "rejected", "released", "parked", "resumed",
}

// rule is a Notify while its file is read.
type rule struct {
	Notify
	at span
}

// setRule puts one value into the rule that is being read.
func (w *walker) setRule(name string, v any) {
	if len(w.rules) == 0 {
		return // notify.on without [[notify]] is no TOML that comes here
	}
	r := &w.rules[len(w.rules)-1]
	switch name {
	case "on":
		r.On = v.([]string)
	case "command":
		r.Command = v.([]string)
	case "timeout":
		r.Timeout = v.(time.Duration)
	}
}

func (w *walker) newRule(at span) {
	w.rules = append(w.rules, rule{Notify{Timeout: DefaultNotifyTimeout, From: w.p.path}, at})
}

// ruleValue is what the present rule has for a key.
func (w *walker) ruleValue(path []string) any {
	list, _ := w.doc[path[0]].([]any)
	if n := len(w.rules); n > 0 && n <= len(list) && len(path) == 2 {
		table, _ := list[n-1].(map[string]any)
		return table[path[1]]
	}
	return nil
}

// inlineRules reads notify = [{…}, …], whose parts have no places of their own.
func (w *walker) inlineRules(path []string, at span) {
	list, _ := w.doc[path[0]].([]any)
	for _, item := range list {
		w.newRule(at)
		table, ok := item.(map[string]any)
		if !ok {
			w.mistake(at, path[0], "", "each of its items is a table with on and command")
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(table)) {
			full := []string{path[0], name}
			k := find(full)
			if k == nil {
				w.mistake(at, strings.Join(full, "."), "", "unknown key; "+known(full))
				continue
			}
			v, why := k.kind.value(table[name], "")
			if why == "" && k.check != nil {
				why = k.check(v)
			}
			if why != "" {
				w.mistake(at, strings.Join(full, "."), "", why)
				continue
			}
			w.setRule(name, v)
		}
	}
}

// closeRules refuses rules that would never do anything.
func (w *walker) closeRules() {
	for _, r := range w.rules {
		switch {
		case len(w.p.bads) > 0: // what is missing may be what is wrong
		case len(r.On) == 0:
			w.mistake(r.at, "notify", "", "it needs on, a list of what the command is told of")
		case len(r.Command) == 0:
			w.mistake(r.at, "notify", "", "it needs command, a list of words")
		default:
			w.p.notify = append(w.p.notify, r.Notify)
		}
	}
}

// aCommand asks for a list of words that can be a command.
func aCommand(v any) string {
	words := v.([]string)
	if len(words) == 0 || words[0] == "" || strings.Contains(strings.Join(words, ""), "\x00") {
		return `it must be a list of words, such as ["notify-send", "handsel"]`
	}
	return ""
}
