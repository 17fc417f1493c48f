package hook

import (
	"os/exec"
	"strings"
	"testing"
)

// rules of the tests: in gates, H<pool> is handsel's gate.
var rules = map[string][]string{
	"build": {"./gradlew", "make"},
	"rust":  {"cargo build", "cargo test"},
	"js":    {"npm test", "npm run build"},
}

// agent is the one engine of the tests.
func agent(argv []string) bool { return strings.Contains(strings.Join(argv, " "), "claude") }

// gatedLines has lines and what becomes of them; an empty second one: nothing. In it,
// %rust stands for the gate of the pool.
var gatedLines = []struct{ name, line, want string }{
	{"a command", "cargo build", "%rust cargo build"},
	{"its further words", "cargo build --release -p x", "%rust cargo build --release -p x"},
	{"options in between", "cargo -q +nightly build", "%rust cargo -q +nightly build"},
	{"another of its verbs", "cargo fmt", ""},
	{"a word too few", "cargo", ""},
	{"a longer word", "cargo builder", ""},
	{"as an argument", "echo cargo build", ""},
	{"a program by its path", "/usr/bin/make -j4", "%build /usr/bin/make -j4"},
	{"a file here, from elsewhere", "../gradlew test", "%build ../gradlew test"},
	{"a file here, absolute", "/src/app/gradlew test", "%build /src/app/gradlew test"},
	{"a file here, from PATH", "gradlew test", ""},
	{"in quotes", `"./gradlew" 'te st'`, `%build "./gradlew" 'te st'`},
	{"in parts", `./gra"dle"w`, `%build ./gra"dle"w`},

	{"after cd", "cd app && ./gradlew test", "cd app && %build ./gradlew test"},
	{"one after the other", "cargo build && cargo test; make", "%rust cargo build && %rust cargo test; %build make"},
	{"or", "make || true", "%build make || true"},
	{"on lines", "cd x\nmake\n", "cd x\n%build make\n"},
	{"in the background", "make & wait", "%build make & wait"},
	{"in a pipe", "make 2>&1 | tail -5", "%build make 2>&1 | tail -5"},
	{"behind a pipe", "yes |& make", "yes |& %build make"},
	{"two of a pool in a pipe", "cargo build | cargo test", "%rust cargo build | cargo test"},
	{"two pools in a pipe", "cargo build | npm test", "%js,rust cargo build | npm test"},
	{"a pipe after a pipe", "make | cat && make | cat", "%build make | cat && %build make | cat"},
	{"one after the other in a pipe", "(make a && make b) | tail", "(%build make a && %build make b) | tail"},
	{"two in subshells of a pipe", "(cd a; make) | (cd b; make)", "(cd a; %build make) | (cd b; make)"},

	{"with variables", "CC=clang A[1]=x B+=y make", "CC=clang A[1]=x B+=y %build make"},
	{"with a redirection before", ">log 2>&1 make", ">log 2>&1 %build make"},
	{"to a file", "make &>log", "%build make &>log"},
	{"negated", "! make", "! %build make"},
	{"if", "if make; then echo y; else cargo test; fi", "if %build make; then echo y; else %rust cargo test; fi"},
	{"for", "for i in make test; do make $i; done", "for i in make test; do %build make $i; done"},
	{"while", "while make; do sleep 1; done", "while %build make; do sleep 1; done"},
	{"a group", "{ make; }", "{ %build make; }"},
	{"substituted", `echo "$(make -s x)"`, `echo "$(%build make -s x)"`},
	{"substituted as of old", "echo `make -s x`", "echo `%build make -s x`"},
	{"substituted in a default", `echo ${X:-$(make)}`, `echo ${X:-$(%build make)}`},
	{"behind arithmetic", "x=$((1 << 3)) && ((x < 9)) && make", "x=$((1 << 3)) && ((x < 9)) && %build make"},
	{"behind a test", `[[ a < b && -n "make" ]] && make`, `[[ a < b && -n "make" ]] && %build make`},
	{"behind a comment", "# make\nmake # make", "# make\n%build make # make"},
	{"in a function", "f() { make; }; f", "f() { %build make; }; f"},
	{"a here-document", "cat <<EOF && make\nmake\nEOF\nmake", "cat <<EOF && %build make\nmake\nEOF\n%build make"},
	{"a here-document behind tabs", "cat <<-'E'\n\tmake\n\tE\nmake", "cat <<-'E'\n\tmake\n\tE\n%build make"},
	{"a here-string", "make <<< make", "%build make <<< make"},
	{"a line that goes on", "cd x && \\\n make", "cd x && \\\n %build make"},

	{"timed", "time -p make", "time -p %build make"},
	{"exec", "exec make", "exec %build make"},
	{"command", "command make", "command %build make"},
	{"niced", "nice -n 5 make", "%build nice -n 5 make"},
	{"timed and niced", "time nice make", "time %build nice make"},
	{"env", "env -i -u X A=b make", "%build env -i -u X A=b make"},
	{"timeout", "timeout -k 5 60 make", "%build timeout -k 5 60 make"},
	{"sudo", "sudo -u me make", "%build sudo -u me make"},
	{"xargs", "ls | xargs -n 1 make", "ls | %build xargs -n 1 make"},
	{"a shell told to", `bash -lc "cd x && make"`, `%build bash -lc "cd x && make"`},
	{"a shell with an option told to", "bash -o pipefail -c 'make | cat'", "%build bash -o pipefail -c 'make | cat'"},

	{"not to be hung up", "nohup make >log &", "nohup %build make >log &"},
	{"not to be hung up, and niced", "/usr/bin/nohup nice make", "/usr/bin/nohup %build nice make"},
	{"in a session of its own", "setsid -w make", "setsid -w %build make"},
	{"a group in a pipe", "{ cargo build; } | cargo test", "{ %rust cargo build; } | cargo test"},
	{"a loop in a pipe", "cargo build | while read l; do cargo test; done", "%rust cargo build | while read l; do cargo test; done"},
	{"a loop before a pipe", "for i in 1; do if cargo build; then make; fi; done | cat; make", "for i in 1; do if %rust cargo build; then %build make; fi; done | cat; %build make"},

	{"an agent beside it", "claude -p x && make", "claude -p x && %build make"},
	{"an agent in what a shell is told", "sh -c 'claude -p x && make'; make", "sh -c 'claude -p x && make'; %build make"},
	{"a lookup", "command -v make", ""},
	{"gated already", "handsel gate build -- make", ""},
	{"gated already, elsewhere", "cd x && /opt/bin/handsel gate build -- make; make", ""},
	{"gated by what a shell is told", "sh -c 'handsel gate build -- make'; make", ""},
	{"a variable as a program", "$MAKE; m$ake", ""},
	{"a list", "x=(make test)", ""},
	{"a function of that name", "make() { echo; }", ""},
	{"a function of that name, apart", "make () { echo; }", ""},
	{"a pattern", "case $1 in a) echo;; make) echo;; esac", ""},
	{"beside its reader", "diff <(make -n) x", ""},
	{"in quotes as an argument", "echo 'make; make' \"; make\"", ""},
	{"cut short in a quote", "make 'x", ""},
	{"cut short in a substitution", "make $(x", ""},
	{"cut short in a here-document", "make <<E\nx", ""},
	{"cut short behind a backslash", "make \\", ""},
	{"a parenthesis too many", "make )", ""},
	{"globs of another kind", "make !(a|b)", ""},
	{"behind a function of that name", "make() { echo; }; time make; cargo build", "make() { echo; }; time make; %rust cargo build"},
	{"in what a function of that name runs", "make() { command make -s; }", "make() { command %build make -s; }"},
	{"a carriage return", "make\r\n", ""},
	{"a here-document that goes on", "cat <<E\na\\\nE\nmake\nE\nmake", "cat <<E\na\\\nE\nmake\nE\n%build make"},
	{"a here-document that ends elsewhere", "x=$(cat <<E)\na\nE\nmake", ""},
	{"a descriptor that a gate does not pass on", "exec 3<x; make", ""},
	{"a descriptor in a variable", "make {fd}<x", ""},
	{"an empty word before a redirection", `make ""<x`, `%build make ""<x`},
	{"a group without an end", "{ make", ""},
	{"an end without a group", "make; }", ""},
	{"a quote in a test", `[[ "'" == ' ]]; make # ' ]]; make`, `[[ "'" == ' ]]; make # ' ]]; %build make`},
	{"in a test", `[[ $(make) ]]`, `[[ $(%build make) ]]`},
	{"a NUL", "make \x00", ""},
	{"nothing", "", ""},
}

func TestGatesStandBeforeTheCommandsThatRulesName(t *testing.T) {
	for _, tt := range gatedLines {
		t.Run(tt.name, func(t *testing.T) {
			want := tt.want
			for _, pools := range []string{"js,rust", "js", "rust", "build"} {
				want = strings.ReplaceAll(want, "%"+pools, "/opt/handsel gate "+pools+" --")
			}
			got, ok := Gated(tt.line, "/opt/handsel", rules, agent)
			if ok != (tt.want != "") || ok && got != want {
				t.Errorf("Gated(%q) = %q, %v\nwant %q", tt.line, got, ok, want)
			}
			if !ok && got != tt.line {
				t.Errorf("Gated(%q) changed it to %q", tt.line, got)
			}
		})
	}
}

// TestGatedLinesParse: what bash could read before, it can read after.
func TestGatedLinesParse(t *testing.T) {
	for _, tt := range gatedLines {
		got, ok := Gated(tt.line, "/opt/it's here/handsel", rules, agent)
		if !ok || exec.Command("bash", "-nc", tt.line).Run() != nil {
			continue
		}
		if out, err := exec.Command("bash", "-nc", got).CombinedOutput(); err != nil {
			t.Errorf("%s: %q: %v\n%s", tt.name, got, err, out)
		}
	}
}

func TestSecondHookFindsNothingToDo(t *testing.T) {
	for _, tt := range gatedLines {
		if once, ok := Gated(tt.line, "/opt/handsel", rules, agent); ok {
			if twice, again := Gated(once, "/opt/handsel", rules, agent); again {
				t.Errorf("%q became %q and then %q", tt.line, once, twice)
			}
		}
	}
}

// A line may be as long as its client lets it be, and all of it gates.
func TestLineOfManyGatesIsDoneInOneGo(t *testing.T) {
	for part, gates := range map[string]int{"make;": 1, "make | cargo build;": 1, "(make | cat) | (cargo build);": 1, "$(make) | cat;": 1} {
		n := MaxLine / len(part)
		got, ok := Gated(strings.Repeat(part, n), "H", rules, agent)
		if found := strings.Count(got, "H gate "); !ok || found != n*gates {
			t.Errorf("%s %d times: %d gates, %v", part, n, found, ok)
		}
	}
}

func TestDeepNestingIsLeftAlone(t *testing.T) {
	for _, deep := range []string{"(", "$(", "${x:-", `"$(`, "`", "((", "$((", "{ ", `\`, "bash -c '"} {
		line := strings.Repeat(deep, 200_000) + "make"
		if got, ok := Gated(line, "/opt/handsel", rules, agent); ok && !strings.HasPrefix(line, "{") {
			t.Errorf("%q… became %.80q", deep, got)
		}
	}
}

// FuzzGatedLine: no line makes it panic, and with the gates taken out the line is the
// old one.
func FuzzGatedLine(f *testing.F) {
	for _, tt := range gatedLines {
		f.Add(tt.line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		const exe = "/opt/handsel-of-the-test"
		got, ok := Gated(line, exe, rules, agent)
		if !ok {
			if got != line {
				t.Fatalf("nothing to gate, and %q became %q", line, got)
			}
			return
		}
		if strings.Contains(line, exe) {
			return
		}
		for _, pools := range []string{"build", "js", "rust", "build,js", "build,rust", "js,rust", "build,js,rust"} {
			got = strings.ReplaceAll(got, exe+" gate "+pools+" -- ", "")
		}
		if got != line {
			t.Fatalf("%q became something else: %q", line, got)
		}
	})
}
