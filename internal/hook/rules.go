package hook

import (
	"fmt"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
)

// gate is where a line gets a gate: at the byte where a command begins.
type gate struct {
	at    int
	pools []string
}

// Gated is the line with a gate in front of each command that a rule names: rules
// has the first words of commands by pool, exe is our executable. Nothing else of
// the line is changed. A pipeline with several such commands gets one gate, for all
// of their pools: two could wait for each other. ok is false where there is nothing
// to gate: no rule fits, the line cannot be read, or it speaks of handsel, which
// counts already, or looks. A command of which agent says that it is one gets no
// gate, which would refuse it.
func Gated(line, exe string, rules map[string][]string, agent func(argv []string) bool) (gated string, ok bool) {
	gates := gatesOf(line, rules, agent)
	slices.SortFunc(gates, func(a, b gate) int { return a.at - b.at }) // as they are, unless words before a gate had commands in them
	var out strings.Builder
	told, word := 0, quoteWord(exe)
	for _, one := range gates {
		out.WriteString(line[told:one.at])
		out.WriteString(word + " gate " + strings.Join(one.pools, ",") + " -- ")
		told = one.at
	}
	out.WriteString(line[told:])
	return out.String(), len(gates) > 0
}

// places finds the first gate that runs beside a command: at some level it is in the
// same pipeline, and elsewhere in it. For each pipeline two are enough, of which one
// is elsewhere.
type places map[string][]struct{ gate, element int }

// keys are the pipelines that lead to a command, from the outermost.
func (w way) keys() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		var key []byte
		for i, step := range w {
			key = fmt.Appendf(key, "%d/", step.pipeline)
			if !yield(i, string(key)) {
				return
			}
			key = fmt.Appendf(key, "%d/", step.element)
		}
	}
}

func (p places) beside(w way) (gate int, ok bool) {
	for i, key := range w.keys() {
		for _, one := range p[key] {
			if one.element != w[i].element && (!ok || one.gate < gate) {
				gate, ok = one.gate, true
			}
		}
	}
	return gate, ok
}

func (p places) add(w way, gate int) {
	for i, key := range w.keys() {
		have := p[key]
		if len(have) == 0 || len(have) == 1 && have[0].element != w[i].element {
			p[key] = append(have, struct{ gate, element int }{gate, w[i].element})
		}
	}
}

func gatesOf(line string, rules map[string][]string, agent func([]string) bool) (gates []gate) {
	if len(rules) == 0 || strings.IndexByte(line, unknown) >= 0 {
		return nil
	}
	list, ok := commands(line)
	if !ok {
		return nil
	}
	slices.SortStableFunc(list, func(a, b command) int { return a.words[0].at - b.words[0].at })
	before := places{}
	for _, one := range list {
		found := map[string]bool{}
		at, ok := judge(one.words, rules, found, 0)
		if !ok {
			return nil
		}
		if len(found) == 0 || agent(texts(one.words[at:])) {
			continue
		}
		i, ok := before.beside(one.way)
		if !ok {
			i = len(gates)
			gates = append(gates, gate{at: one.words[at].at})
			before.add(one.way, i)
		}
		for _, pool := range gates[i].pools {
			found[pool] = true
		}
		gates[i].pools = slices.Sorted(maps.Keys(found))
	}
	return gates
}

// judge notes the pools of one command, at every step of what is put in front of
// it, and says before which of its words a gate belongs. ok is false where the whole
// line is to be left alone.
func judge(words []word, rules map[string][]string, found map[string]bool, depth int) (before int, ok bool) {
	argv := texts(words)
	for i := 0; i < len(argv); {
		rest := argv[i:]
		if path.Base(rest[0]) == "handsel" {
			return 0, false
		}
		for pool, list := range rules {
			if slices.ContainsFunc(list, func(one string) bool { return fits(rest, strings.Fields(one)) }) {
				found[pool] = true
			}
		}
		if text, ok := told(rest); ok && depth < maxDepth {
			return before, judgeText(text, rules, found, depth+1)
		}
		next, ofShell := inner(rest)
		if next == 0 {
			break
		}
		if ofShell && before == i {
			before = i + next
		}
		i += next
	}
	return before, true
}

// judgeText is judge for what a shell is told to run. What cannot be read has no
// pools.
func judgeText(text string, rules map[string][]string, found map[string]bool, depth int) bool {
	list, ok := commands(text)
	for _, one := range list {
		if !ok {
			break
		}
		if _, ok := judge(one.words, rules, found, depth); !ok {
			return false
		}
	}
	return true
}

func texts(words []word) []string {
	argv := make([]string, len(words))
	for i, w := range words {
		argv[i] = w.text
	}
	return argv
}

// fits tells whether a command begins with a rule's words. Options between them
// are passed over: cargo -q build is cargo build.
func fits(argv, rule []string) bool {
	if len(rule) == 0 || !sameProgram(argv[0], rule[0]) {
		return false
	}
	rest := argv[1:]
	for _, word := range rule[1:] {
		for len(rest) > 0 && rest[0] != word && isOption(rest[0]) {
			rest = rest[1:]
		}
		if len(rest) == 0 || rest[0] != word {
			return false
		}
		rest = rest[1:]
	}
	return true
}

// isOption is -q, --release and, as cargo has it, +nightly.
func isOption(word string) bool { return len(word) > 1 && (word[0] == '-' || word[0] == '+') }

// sameProgram compares the first words: a name is the program wherever it lies,
// ./name any path that ends so, and another path only itself.
func sameProgram(word, rule string) bool {
	name, here := strings.CutPrefix(rule, "./")
	switch {
	case !strings.Contains(rule, "/"):
		return path.Base(word) == rule
	case here && !strings.Contains(name, "/"):
		return strings.Contains(word, "/") && path.Base(word) == name
	}
	return path.Clean(word) == path.Clean(rule)
}

// wrapped says how a command that runs another one is written: the options that
// take the next word as a value, and how many words come before the command.
type wrapped struct {
	valued   string // apart by blanks
	operands int
	holds    bool // what it does must hold for a gate as well, so that one stands behind it
}

// wrapper is a program that may stand in front of a command. It is a function, so that
// nothing is built at start.
func wrapper(name string) (w wrapped, ok bool) {
	switch name {
	case "nice":
		return wrapped{valued: "-n --adjustment"}, true
	case "env":
		return wrapped{valued: "-u -C --unset --chdir"}, true
	case "ionice":
		return wrapped{valued: "-c -n --class --classdata"}, true
	case "stdbuf":
		return wrapped{valued: "-i -o -e --input --output --error"}, true
	case "timeout":
		return wrapped{valued: "-k -s --kill-after --signal", operands: 1}, true
	case "taskset":
		return wrapped{operands: 1}, true
	case "sudo":
		return wrapped{valued: "-u -g -h -p -C -D -R -T --user --group --host --prompt --chdir"}, true
	case "xargs":
		return wrapped{valued: "-I -n -P -L -s -d -a -E --max-args --max-procs --delimiter --arg-file"}, true
	case "nohup", "setsid":
		return wrapped{holds: true}, true
	}
	return wrapped{}, false
}

// inner is at which word of argv the command begins that argv runs, 0 where it runs
// none. ofShell tells that a gate can only stand behind what is in front: that is no
// program, or what it does must hold for the gate as well, as nohup's does.
func inner(argv []string) (next int, ofShell bool) {
	switch argv[0] {
	case "exec", "command", "builtin":
		if len(argv) > 1 && !isOption(argv[1]) {
			return 1, true
		}
		return 0, false
	case "time":
		for next = 1; next < len(argv) && isOption(argv[next]); next++ {
			if argv[next] != "-p" && argv[next] != "--" {
				return 0, false
			}
		}
		return next % len(argv), true
	}
	w, ok := wrapper(path.Base(argv[0]))
	if !ok {
		return 0, false
	}
	next = 1
	for next < len(argv) && isOption(argv[next]) {
		word := argv[next]
		if next++; word == "--" {
			break
		}
		if slices.Contains(strings.Fields(w.valued), word) {
			next++
		}
	}
	for next < len(argv) && (assignment(argv[next]) || argv[next] == "-") {
		next++
	}
	if next += w.operands; next >= len(argv) {
		return 0, false
	}
	return next, w.holds
}

// told is the text that a shell is told to run: sh -c TEXT.
func told(argv []string) (string, bool) {
	switch path.Base(argv[0]) {
	case "sh", "bash", "zsh", "dash", "ksh":
	default:
		return "", false
	}
	for rest := argv[1:]; len(rest) > 1; rest = rest[1:] {
		word := rest[0]
		switch {
		case word == "-o" || word == "+o" || word == "-O" || word == "+O":
			rest = rest[1:]
		case len(word) < 2 || word[0] != '-' && word[0] != '+' || word == "--":
			return "", false
		case word[0] == '-' && word[1] != '-' && strings.Contains(word, "c"):
			return rest[1], true
		}
	}
	return "", false
}

// Quote writes a text as one word of the shell. Every byte of it stands as it is
// between single quotes; a single quote itself is put between two such words.
func Quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// quoteWord leaves plain words as they are.
func quoteWord(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./,:+@", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return Quote(word)
}
