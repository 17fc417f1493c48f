package hook

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// oddLines are lines in which it is easy to take a command for text, or text for a
// command. Some get a gate, some do not.
var oddLines = []string{
	"cat <<E\na\\\nE\nmake\nE\n",
	"cat <<'E'\na\\\nE\nmake\n",
	"cat <<E \"$(echo x\n)\"\nmake\nE\n",
	"x=$(cat <<E)\nmake '\nE\nmake '\n",
	"cat <<E\r\nmake\nE\nmake\nE\r\n",
	"echo a\r#'\nmake\n'",
	"make\r\nmake\r\n",
	`echo "${HOME%'"'}"; echo '}"; make; #'`,
	`((echo "))" ); echo "; make #")`,
	`echo $((1)); ((echo ")"); (make))`,
	`[[ "'" == ' ]]; make # ' ]]; make`,
	`[[ -n x && "a b" == "a b" ]] && make`,
	"[[ a == a # ]]; make '\n]] && make #'",
	"echo `echo '`; make; echo `'`",
	"echo `echo x # ' `; make #'",
	"echo $[ 1 <<2 ]\nmake\n2 ]\nmake",
	"make() { echo mine; }; make",
	"make () (echo mine); cd . && make x",
	"cat <(make)",
	"make <(echo y)",
	"make </dev/null >/dev/null 2>&1; make",
	"make 3>&1 1>&2 2>&3",
	"exec 3<<<three; make -u 3; make",
	"make {fd}<<<three",
	"A=1 B=2 make $'a\\'b' \"c'd\" e\\ f",
	"make a{b,c} $((1+2)) ${HOME:+x} \"${HOME:+\"in\"}\" # no",
	"if make; then make; fi | cat; for i in make; do make $i; done | make",
	"make | while read l; do make \"$l\"; done",
	"{ make; make; } 2>&1 | tail -1",
	"! make && ! make exit 1; echo $?",
	"make exit 3 || echo $?; make exit 4",
	"set -e; make exit 5; echo not here",
	"set -o pipefail; make exit 6 | cat; echo $?",
	"{ time -p make; } 2>/dev/null",
	"make & wait $!; echo $?",
	"make \\\n a \\\n b; ma\\\nke c",
	"x='make; make' ; make \"$x\" 'é ü' \xff",
	"printf 'a\\0b' | make stdin",
	"make stdin <<E\n$(make in)\nE\n",
	"f() { make f \"$@\"; }; f 1 2; (f 3)",
	"eval 'make 1'; make 2",
	"for ((i = 0; i < 2; i++)); do make $i; done",
	"until make; do :; done; while ! make; do :; done",
	"case make in make) make;; esac; make",
	"coproc make; wait; make",
	"arr=(make 'x y' z); make \"${arr[@]}\"",
	"make 'a\nb' \"c\nd\"; # make '\nmake e",
	"echo ${x:-'}'} ; make; echo ${x:-$'\\''}",
	"echo make | xargs make; nice make; env A=b make; command make; exec make",
	"trap 'make trap' EXIT; make",
	"(make; exit 7); echo $?; make",
	"nohup make; setsid -w make; nice nohup make",
	"echo \"$(make \"a b\" \"$(make c)\")\"",
	"make;make&&make||make;make&",
	". /dev/stdin <<<make; make",
	">f make; <f make stdin; make 2>>f >>f; cat f",
	"true && { make; } && ( make ) ; [ -f x ] || make",
}

// TestGatedLinesMeanTheSame: with a stand-in for handsel that does what follows its
// "--", a line puts out the same and ends the same, behind gates or not.
func TestGatedLinesMeanTheSame(t *testing.T) {
	bin := t.TempDir()
	program(t, bin, "handsel", `while [ "$1" != -- ]; do shift; done; shift
case "$*" in */dev/fd/*) exec "$@"; esac # a gate passes on what an argument names
exec "$@" 3<&- 10<&- 63<&-`)
	program(t, bin, "make", `echo "make($A$B) $#:"; for a; do printf '<%s>' "$a"; case $a in /dev/fd/*|-u) cat <&3 2>&1 || cat "$a";; esac; done
[ "$1" = stdin ] && cat; [ "$1" = exit ] && exit $2; exit 0`)
	for _, line := range oddLines {
		gated, ok := Gated(line, filepath.Join(bin, "handsel"), rules, agent)
		if !ok {
			continue
		}
		before, after := putsOut(t, bin, line), putsOut(t, bin, gated)
		if before != after {
			t.Errorf("%q put out\n%s\nand, as %q,\n%s", line, before, gated, after)
		}
	}
}

func program(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash\n"+text+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// putsOut is what bash puts out for a line, and how it ends.
func putsOut(t *testing.T, bin, line string) string {
	t.Helper()
	cmd := exec.Command("bash", "-c", line)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "PATH="+bin+":/usr/bin:/bin")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil {
		out.WriteString("\n" + err.Error())
	}
	return out.String()
}
