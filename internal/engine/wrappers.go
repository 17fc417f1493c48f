package engine

import (
	"slices"
	"strings"
	"sync"
)

// wrapper judges the words after a program that starts another one.
type wrapper func(s *search, args []string) (string, bool)

// options says which options of a program take the next word as their value.
// All others stand alone, or carry their value after = or without a blank.
type options struct {
	short string // letters
	long  string // names without the dashes, separated by blanks
}

// option is one option that was seen, with its value if it takes one.
type option struct{ name, value string }

// scan reads the options at the head of args, up to "--" or the first word
// that is none, and returns the words after them. It ends behind an option
// named in until, too.
func (o options) scan(args []string, until ...string) (seen []option, rest []string) {
	long := strings.Fields(o.long)
	for len(args) > 0 {
		word := args[0]
		if word == "--" {
			return seen, args[1:]
		}
		if len(word) < 2 || word[0] != '-' {
			return seen, args
		}
		var found []option
		if strings.HasPrefix(word, "--") {
			found, args = scanLong(word[2:], args[1:], long)
		} else {
			found, args = scanShort(word[1:], args[1:], o.short)
		}
		seen = append(seen, found...)
		if contains(until, found[len(found)-1].name) {
			return seen, args
		}
	}
	return seen, nil
}

func scanLong(word string, args, long []string) ([]option, []string) {
	name, value, attached := strings.Cut(word, "=")
	if !attached && contains(long, name) && len(args) > 0 {
		return []option{{name, args[0]}}, args[1:]
	}
	return []option{{name, value}}, args
}

// scanShort reads a cluster such as -iu NAME or -s9.
func scanShort(word string, args []string, short string) (seen []option, rest []string) {
	for i := range len(word) {
		name := word[i : i+1]
		if !strings.Contains(short, name) {
			seen = append(seen, option{name: name})
			continue
		}
		if i+1 < len(word) {
			return append(seen, option{name, word[i+1:]}), args
		}
		if len(args) > 0 {
			return append(seen, option{name, args[0]}), args[1:]
		}
		return append(seen, option{name: name}), nil
	}
	return seen, args
}

func contains(list []string, name string) bool {
	for _, each := range list {
		if each == name {
			return true
		}
	}
	return false
}

// value finds the last of the options with one of these names.
func value(seen []option, names ...string) (string, bool) {
	for i := len(seen) - 1; i >= 0; i-- {
		if contains(names, seen[i].name) {
			return seen[i].value, true
		}
	}
	return "", false
}

// plain is a program whose command begins after its options and so many
// operands.
func plain(short, long string, operands int) wrapper {
	return unless("", short, long, operands)
}

// unless is plain for a program that starts nothing when it has one of these
// options: taskset -p acts on a process that is there already.
func unless(stop, short, long string, operands int) wrapper {
	return func(s *search, args []string) (string, bool) {
		seen, rest := options{short, long}.scan(args)
		for _, o := range seen {
			if len(o.name) == 1 && strings.Contains(stop, o.name) {
				return "", false
			}
		}
		if len(rest) <= operands {
			return "", false
		}
		return s.command(rest[operands:])
	}
}

// afterDashes is a program with a language of options of its own, whose
// command is what follows the first "--".
func afterDashes(s *search, args []string) (string, bool) {
	for i, word := range args {
		if word == "--" {
			return s.command(args[i+1:])
		}
	}
	return "", false
}

// verbs is a program that starts commands with some of its subcommands only.
func verbs(before options, by map[string]wrapper) wrapper {
	return func(s *search, args []string) (string, bool) {
		_, rest := before.scan(args)
		if len(rest) == 0 {
			return "", false
		}
		open, ok := by[rest[0]]
		if !ok {
			return "", false
		}
		return open(s, rest[1:])
	}
}

// assigned drops the NAME=value words before a command.
func assigned(args []string) []string {
	for len(args) > 0 && strings.Contains(args[0], "=") {
		args = args[1:]
	}
	return args
}

// wrapperOf finds a program that is looked through, by its base name.
func wrapperOf(name string) (wrapper, bool) {
	wrappers.Do(listWrappers)
	open, ok := wrappers.list[name]
	return open, ok
}

// wrappers lists those programs. The list is made when it is first asked: most
// starts name their engine themselves.
var wrappers struct {
	sync.Once
	list map[string]wrapper
}

// listWrappers fills the list; one more is one more line.
func listWrappers() {
	exec := plain("", "", 0)
	wrappers.list = map[string]wrapper{
		"env": env, "genv": env,
		"sh": shell, "bash": shell, "dash": shell, "zsh": shell, "ksh": shell, "ash": shell, "mksh": shell, "fish": shell,

		// Priorities, limits, signals, buffers.
		"nice":     plain("n", "adjustment", 0),
		"ionice":   unless("pPu", "cn", "class classdata", 0),
		"chrt":     chrt,
		"taskset":  unless("p", "", "", 1),
		"timeout":  plain("sk", "signal kill-after", 1),
		"gtimeout": plain("sk", "signal kill-after", 1),
		"stdbuf":   plain("ioe", "input output error", 0),
		"gstdbuf":  plain("ioe", "input output error", 0),
		"unbuffer": exec,
		"nohup":    exec,
		"setsid":   exec,
		"time":     plain("fo", "format output", 0),
		"gtime":    plain("fo", "format output", 0),
		"prlimit":  unless("p", "o", "output", 0),
		"choom":    unless("p", "n", "adjust", 0),
		"cpulimit": unless("pe", "lmi", "limit", 0),
		"numactl":  plain("iNCmpPw", "interleave cpunodebind physcpubind membind preferred weighted-interleave", 0),
		"flock":    flock,

		// Other users, namespaces, session services.
		"sudo":        sudo,
		"doas":        unless("s", "uC", "", 0),
		"runuser":     runuser,
		"setpriv":     plain("", "ambient-caps inh-caps bounding-set reuid regid ruid euid rgid egid groups securebits pdeathsig selinux-label apparmor-profile landlock-access landlock-rule", 0),
		"unshare":     plain("SGRwl", "setuid setgid root wd propagation map-user map-group map-users map-groups", 0),
		"bwrap":       afterDashes,
		"firejail":    exec,
		"systemd-run": plain("HMpuE", "host machine property unit description slice service-type uid gid nice working-directory setenv on-active on-boot on-calendar", 0),

		"dbus-run-session": plain("", "config-file dbus-daemon", 0),
		"xvfb-run":         plain("efnpsw", "error-file auth-file server-num xauth-protocol server-args wait", 0),
		"tini":             plain("peE", "", 0),
		"dumb-init":        plain("r", "rewrite", 0),
		"caffeinate":       plain("tw", "", 0),
		"arch":             plain("e", "arch", 0),

		// Terminals, tracers, networks, clocks.
		"script":       scripted,
		"rlwrap":       plain("bcCDfgHlmOpqsSwz", "", 0),
		"strace":       unless("p", "eosEuabIOPSUX", "output trace string-limit", 0),
		"proxychains":  plain("f", "", 0),
		"proxychains4": plain("f", "", 0),
		"torsocks":     plain("aPup", "", 0),
		"faketime":     plain("", "", 1),
		"busybox":      exec,
		"toybox":       exec,
		"command":      unless("vV", "", "", 0),
		"exec":         plain("a", "", 0),

		// Runners of packages, interpreters of scripts.
		"npx": runner, "pnpx": runner, "bunx": runner,
		"npm":    verbs(npmOptions, map[string]wrapper{"exec": npmExec, "x": npmExec}),
		"pnpm":   verbs(options{"CF", "dir filter"}, map[string]wrapper{"dlx": runner, "exec": runner}),
		"yarn":   verbs(options{"", "cwd"}, map[string]wrapper{"dlx": runner, "exec": runner}),
		"node":   node,
		"nodejs": node,
		"tsx":    node,
		"bun":    bun,
		"deno":   verbs(options{}, map[string]wrapper{"run": deno}),

		// Managers of versions, environments and secrets.
		"volta":   verbs(options{}, map[string]wrapper{"run": plain("", "node npm pnpm yarn env", 0)}),
		"mise":    verbs(options{"CE", "cd env"}, map[string]wrapper{"x": afterDashes, "exec": afterDashes}),
		"fnm":     verbs(options{}, map[string]wrapper{"exec": plain("", "using", 0)}),
		"asdf":    verbs(options{}, map[string]wrapper{"exec": exec}),
		"nodenv":  verbs(options{}, map[string]wrapper{"exec": exec}),
		"direnv":  verbs(options{}, map[string]wrapper{"exec": plain("", "", 1)}),
		"op":      verbs(options{}, map[string]wrapper{"run": afterDashes}),
		"doppler": verbs(options{}, map[string]wrapper{"run": afterDashes}),
		"dotenvx": verbs(options{}, map[string]wrapper{"run": afterDashes}),
		"dotenv":  afterDashes,
		"handsel": verbs(options{}, map[string]wrapper{"run": afterDashes, "gate": afterDashes}),
	}
}

// env is env(1). Its -S splits one word into several, options included.
func env(s *search, args []string) (string, bool) {
	o := options{"uCSa", "unset chdir split-string argv0"}
	for range maxDepth {
		seen, rest := o.scan(args, "S", "split-string")
		if len(rest) > 0 && rest[0] == "-" && len(seen) == 0 {
			args = rest[1:] // an old spelling of -i
			continue
		}
		if len(seen) == 0 || seen[len(seen)-1].name != "S" && seen[len(seen)-1].name != "split-string" {
			return s.command(assigned(rest))
		}
		words, ok := split(seen[len(seen)-1].value)
		if !ok {
			return "", false
		}
		args = append(words, rest...)
	}
	return "", false
}

// sudo takes assignments, and with -e, -l, -v, -k it starts nothing.
func sudo(s *search, args []string) (string, bool) {
	seen, rest := options{"CDghpRrTtuU", "close-from chdir group host prompt chroot role command-timeout type user other-user"}.scan(args)
	if _, ok := value(seen, "e", "edit", "l", "list", "v", "validate", "K"); ok {
		return "", false
	}
	return s.command(assigned(rest))
}

// runuser runs a command's words with -u, a shell's text with -c.
func runuser(s *search, args []string) (string, bool) {
	seen, rest := options{"ugGcsw", "user group supp-group command session-command shell whitelist-environment"}.scan(args)
	if text, ok := value(seen, "c", "command", "session-command"); ok {
		return s.text(text)
	}
	if _, ok := value(seen, "u", "user"); !ok {
		return "", false
	}
	return s.command(rest)
}

// chrt takes a priority before the command, which newer ones let out.
func chrt(s *search, args []string) (string, bool) {
	seen, rest := options{"TPD", "sched-runtime sched-period sched-deadline"}.scan(args)
	if _, ok := value(seen, "p", "pid", "m", "max"); ok {
		return "", false
	}
	if len(rest) > 0 && rest[0] != "" && strings.Trim(rest[0], "0123456789") == "" {
		rest = rest[1:]
	}
	return s.command(rest)
}

// flock is flock(1): a file, then a command's words or -c and a shell's text.
func flock(s *search, args []string) (string, bool) {
	_, rest := options{"wE", "wait timeout conflict-exit-code"}.scan(args)
	if len(rest) < 2 {
		return "", false
	}
	if rest = rest[1:]; rest[0] == "-c" || rest[0] == "--command" {
		return s.text(strings.Join(rest[1:], " "))
	}
	return s.command(rest)
}

// scripted is script(1): a shell's text after -c, before or after the file on
// Linux, or a command's words after the file on BSD and macOS. Linux's takes
// options from anywhere.
func scripted(s *search, args []string) (string, bool) {
	s.takes = true
	o := options{"cIOBoETm", "command log-in log-out log-io output-limit echo log-timing logging-format"}
	for range 2 {
		seen, rest := o.scan(args)
		if text, ok := value(seen, "c", "command"); ok {
			return s.text(text)
		}
		if len(rest) < 2 {
			return "", false
		}
		if args = rest[1:]; !strings.HasPrefix(args[0], "-") {
			return s.command(args)
		}
		if args[0] == "--" {
			return s.command(args[1:])
		}
	}
	return "", false
}

var npmOptions = options{"pcwC", "package call workspace prefix cache registry userconfig globalconfig loglevel"}

// runner is npx and its like: the first operand is a package or an executable
// that one of the packages named by -p brings.
func runner(s *search, args []string) (string, bool) {
	seen, rest := npmOptions.scan(args)
	if text, ok := value(seen, "c", "call"); ok {
		return s.text(text)
	}
	if len(rest) == 0 {
		return "", false
	}
	s.found = rest
	if name, ok := s.spec(rest[0]); ok {
		return name, true
	}
	if open, ok := wrapperOf(rest[0]); ok {
		return s.enter(open, rest[1:])
	}
	return "", false
}

// npmExec is npm exec: without "--" it reads options after the package's name,
// too, and keeps them.
func npmExec(s *search, args []string) (string, bool) {
	s.takes = s.takes || !slices.Contains(args, "--")
	return runner(s, args)
}

// node runs a file, unless its own options bring the program.
func node(s *search, args []string) (string, bool) {
	rest := nodeScript(args)
	if len(rest) == 0 {
		return "", false
	}
	return s.script(rest)
}

// nodeScript is the file that node runs, and the words after it.
func nodeScript(args []string) []string {
	o := options{"rCe", "require import loader experimental-loader conditions env-file env-file-if-exists title inspect-port icu-data-dir openssl-config redirect-warnings experimental-config-file tsconfig eval"}
	seen, rest := o.scan(args)
	if _, ok := value(seen, "e", "eval", "p", "print", "pe", "c", "check", "run", "test"); ok {
		return nil
	}
	return rest
}

// bun runs a file by itself or with run, and packages with x.
func bun(s *search, args []string) (string, bool) {
	o := options{"rec", "preload require import eval config cwd env-file define loader conditions port"}
	seen, rest := o.scan(args)
	if _, ok := value(seen, "e", "eval", "p", "print"); ok || len(rest) == 0 {
		return "", false
	}
	if rest[0] == "x" {
		return runner(s, rest[1:])
	}
	if rest[0] == "run" {
		if _, rest = o.scan(rest[1:]); len(rest) == 0 {
			return "", false
		}
	}
	return s.script(rest)
}

// deno runs a file or a package named npm:….
func deno(s *search, args []string) (string, bool) {
	_, rest := options{"cLr", "config import-map lock location cert seed log-level env-file"}.scan(args)
	if len(rest) == 0 {
		return "", false
	}
	if strings.HasPrefix(rest[0], "npm:") {
		s.found = rest
		return s.spec(rest[0])
	}
	return s.script(rest)
}
