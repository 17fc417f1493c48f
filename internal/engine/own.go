package engine

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Own is what a configuration says of an engine: of one of the user's own, all
// of it; of a built-in one, its executable (E1, docs/engines.md).
type Own struct {
	// Binary is the executable of a command line that is built; empty: the first
	// of its names, else its own name.
	Binary string
	// Args are the words after the executable, with placeholders.
	Args []string
	// Stdin tells what it reads there: "prompt" or "none". Empty: the prompt, unless
	// Args has it.
	Stdin string
	// Stream names the engine in whose format it prints; empty or "none": in none
	// that is read.
	Stream string
	// Confines says in the user's words how it confines itself; empty: not at all.
	Confines string
	// LightArgs are the words that make it do so.
	LightArgs []string
}

// The placeholders of Own.Args.
const (
	thePrompt = "{prompt}"
	theFile   = "{prompt_file}"
	theModel  = "{model}"
	theResume = "{resume}"
	theDir    = "{dir}"
	theSystem = "{system}"
)

// placeholders are all of them. The config room refuses others.
var placeholders = []string{thePrompt, theFile, theModel, theResume, theDir, theSystem}

// BadOwn reports that the configuration of an engine does not do what is asked of
// it (78).
type BadOwn struct {
	Engine string
	Key    string // such as args
	Why    string
}

func (e *BadOwn) Error() string { return fmt.Sprintf("engine.%s.%s: %s", e.Engine, e.Key, e.Why) }

// build makes the command line of one question from the words of the
// configuration. What was asked and has no place in them is refused, except the
// standing instructions, which then come before the prompt.
func (o Own) build(name string, a Ask) (Command, error) {
	bad := func(key, why string) (Command, error) { return Command{}, &BadOwn{name, key, why} }
	byArg, byFile := o.mentions(thePrompt), o.mentions(theFile)
	byStdin := o.Stdin == "prompt" || o.Stdin == "" && !byArg && !byFile
	switch {
	case len(o.Args) == 0 && o.Stdin == "":
		return bad("args", "it is not set, so no command line can be built")
	case !byStdin && !byArg && !byFile:
		return bad("stdin", `the prompt reaches the engine in no way: args has neither {prompt} nor {prompt_file}, and stdin is "none"`)
	case a.Model != "" && !o.mentions(theModel):
		return bad("args", "a model was asked for, and there is no {model} in it")
	case a.Resume != "" && !o.mentions(theResume):
		return bad("args", "a conversation to go on with was asked for, and there is no {resume} in it")
	}
	prompt := a.Prompt
	if !o.mentions(theSystem) {
		prompt = withSystem(a)
	}
	if byFile && a.Files == "" {
		return bad("args", "there is no directory for {prompt_file}")
	}
	path := filepath.Join(a.Files, "prompt")
	words, err := o.fill(map[string]string{
		thePrompt: string(prompt), theFile: path, theModel: a.Model, theResume: a.Resume, theDir: a.Dir, theSystem: a.System,
	})
	if err != nil {
		return Command{}, err
	}
	c := Command{Argv: slices.Concat([]string{a.Binary}, words, a.Args)}
	if byStdin {
		c.Stdin = prompt
	}
	if byFile {
		c.Files = map[string][]byte{path: prompt}
	}
	return c, nil
}

func (o Own) mentions(placeholder string) bool {
	return slices.ContainsFunc(o.Args, func(word string) bool { return strings.Contains(word, placeholder) })
}

// fill puts values in place of the placeholders. A word with one that has no
// value is left out, together with the flag before it when the placeholder is the
// whole word.
func (o Own) fill(values map[string]string) ([]string, error) {
	var at []string
	for _, name := range placeholders {
		at = append(at, name, values[name])
	}
	put := strings.NewReplacer(at...) // in one pass: a value is not looked through again
	var words []string
	for _, word := range o.Args {
		if name := emptyIn(word, values); name != "" {
			if last := len(words) - 1; word == name && last >= 0 && strings.HasPrefix(words[last], "-") && len(words[last]) > 1 {
				words = words[:last]
			}
			continue
		}
		full := put.Replace(word)
		if len(full) > maxArg {
			return nil, &TooLong{What: "what takes the place of " + word, Size: len(full), Limit: maxArg}
		}
		words = append(words, full)
	}
	return words, nil
}

// emptyIn is the first placeholder in word that has no value.
func emptyIn(word string, values map[string]string) string {
	for _, name := range placeholders {
		if strings.Contains(word, name) && values[name] == "" {
			return name
		}
	}
	return ""
}

// light adds the words that confine it: at the end, where most programs let the
// last one win, but before a "--".
func (o Own) light(args []string) []string {
	at := slices.Index(args, "--")
	if at < 0 {
		at = len(args)
	}
	return slices.Insert(slices.Clone(args), at, o.LightArgs...)
}

// streams tells whether args are like those that are built: they have each word
// of them that is always the same.
func (o Own) streams(args []string) bool {
	for _, word := range o.Args {
		if emptyIn(word, nil) == "" && !slices.Contains(args, word) {
			return false
		}
	}
	return o.Stream != "" && o.Stream != "none"
}
