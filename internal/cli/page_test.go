package cli_test

import (
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// docs/story.md and testdata/story.txtar are one story: the script runs what the
// page shows, in its order, and what is printed must be what stands there, but for
// times, durations, ids, digests and processes. An ellipsis on the page stands for
// any text, alone in a line for any number of lines.
//
//	page N CMD…       run CMD, whose status must be N; what it prints on stdout, and
//	                  on stderr where N is not 0, is what the page shows below it
//	page later CMD…   it is the page's next command, and the script runs it by itself
//	page has FILE     the page shows that file
//	page end          the page has no other command

// shownCommand is a command of the page with what stands below it.
type shownCommand struct{ line, out string }

// storyText is the page, and its commands.
func storyText(ts *testscript.TestScript) (text string, all []shownCommand) {
	data, err := os.ReadFile(filepath.Join(ts.Getenv("EXAMPLES"), "..", "story.md"))
	ts.Check(err)
	open := false
	for line := range strings.SplitSeq(string(data), "\n") {
		code, isCode := strings.CutPrefix(line, "    ")
		command, isCommand := strings.CutPrefix(code, "$ ")
		switch {
		case !isCode && line != "":
			open = false
		case isCode && isCommand:
			if open = !strings.HasPrefix(command, "cd "); open {
				all = append(all, shownCommand{line: command})
			}
		case open:
			all[len(all)-1].out += code + "\n"
		}
	}
	return string(data), all
}

// told is how many commands of the page a script has run.
const told = "PAGE_TOLD"

func storyPage(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: page N|later CMD…, page has FILE, page end")
	}
	text, all := storyText(ts)
	at, _ := strconv.Atoi(ts.Getenv(told))
	switch {
	case args[0] == "end":
		if at != len(all) {
			ts.Fatalf("docs/story.md goes on with: %s", all[at].line)
		}
		return
	case args[0] == "has" && len(args) == 2:
		block := "    " + strings.ReplaceAll(strings.TrimRight(ts.ReadFile(args[1]), "\n"), "\n", "\n    ")
		if !strings.Contains(text, strings.ReplaceAll(block, "\n    \n", "\n\n")+"\n") {
			ts.Fatalf("docs/story.md does not show %s as it is:\n%s", args[1], block)
		}
		return
	case len(args) < 2:
		ts.Fatalf("usage: page N|later CMD…, page has FILE, page end")
	case at >= len(all):
		ts.Fatalf("docs/story.md has no such command: %q", args[1:])
	}
	ts.Setenv(told, strconv.Itoa(at+1))
	next, same := all[at], stable(ts)
	if got, want := typed(args[1:]), strings.ReplaceAll(next.line, "'", ""); same(got) != same(want) {
		ts.Fatalf("the story runs: %s\ndocs/story.md: %s", got, want)
	}
	if args[0] == "later" {
		return
	}
	exits(ts, false, args)
	out := ts.ReadFile("stdout")
	if args[0] != "0" {
		out += ts.ReadFile("stderr")
	}
	if got := same(out); !asOnPage(same(next.out)).MatchString(got) {
		ts.Fatalf("%s\nprints:\n%s\ndocs/story.md shows:\n%s", next.line, got, same(next.out))
	}
}

// typed is a command as somebody types it, without the quotes.
func typed(args []string) string {
	if len(args) == 3 && args[0] == "sh" && args[1] == "-c" {
		return strings.ReplaceAll(args[2], "'", "")
	}
	return strings.Join(args, " ")
}

// asOnPage matches what the page shows.
func asOnPage(text string) *regexp.Regexp {
	parts := strings.Split(text, "\n…\n")
	for i, part := range parts {
		within := strings.Split(part, "…")
		for j := range within {
			within[j] = regexp.QuoteMeta(within[j])
		}
		parts[i] = strings.Join(within, ".*")
	}
	return regexp.MustCompile(`^` + strings.Join(parts, `\n(?:.*\n)*`) + `$`)
}

// differing is what is another each time, and what stands for it.
var differing = []struct {
	at   *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`sha256:[0-9a-f]+`), "DIGEST"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "ID"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?(Z| UTC)?`), "TIME"},
	{regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?(Z| UTC)?`), "TIME"},
	{regexp.MustCompile(`\b[A-Z][a-z]+day, \d+ [A-Z][a-z]+ \d{4}\b`), "DAY"},
	{regexp.MustCompile(`\|\d{10}\b`), "|TIME"},
	{regexp.MustCompile(`\b(pid|child) \d+\b`), "$1 PID"},
	{regexp.MustCompile(`\b(\d+(\.\d+)?(ms|h|m|s))+\b`), "SPAN"},
	{regexp.MustCompile(`\b[0-9a-f]{8}\b`), "ID"},
	{regexp.MustCompile(`[ \t]+`), " "},
	{regexp.MustCompile(` ?\n`), "\n"},
	{regexp.MustCompile(`\n{2,}`), "\n"},
}

// stable takes out of a text what is another each time, and who we are.
func stable(ts *testscript.TestScript) func(string) string {
	names := []string{"ann", "root", "nobody"} // who runs the tests is ann on the page
	if me, err := user.Current(); err == nil && me.Username != "" && !slices.Contains(names, me.Username) {
		names = append(names, regexp.QuoteMeta(me.Username))
	}
	who := regexp.MustCompile(`\b(?:` + strings.Join(names, "|") + `|uid ` + strconv.Itoa(os.Getuid()) + `)\b`)
	places := strings.NewReplacer(ts.Getenv("HANDSEL_HOME"), "~/.local/state/handsel", ts.Getenv("WORK"), "~")
	return func(text string) string {
		text = places.Replace(text)
		for _, d := range differing {
			text = d.at.ReplaceAllString(text, d.name)
		}
		text = who.ReplaceAllString(text, "SOMEBODY")
		return strings.TrimSpace(text) + "\n"
	}
}
