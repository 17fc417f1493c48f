// Command fakeagent stands in for an agent. The package fakeagent above it
// has the table of what it can do; this program keeps to what that says.
//
// It imports little, so that hundreds of it start quickly.
package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// step is one thing the stand-in does, given the words after its name.
type step func(args []string) error

// steps take words up to the next "then".
var steps = map[string]step{
	"sleep":  sleep,
	"touch":  touch,
	"exit":   exit,
	"kill":   kill,
	"print":  printWords,
	"warn":   warn,
	"log":    logged,
	"pid":    pid,
	"until":  until,
	"stdin":  stdin,
	"yes":    yes,
	"cwd":    cwd,
	"env":    environment,
	"fds":    descriptors,
	"ids":    ids,
	"tty":    terminal,
	"tree":   tree,
	"daemon": daemon,
}

// lastSteps take every word that follows, "then" included.
var lastSteps = map[string]step{
	"args":          arguments,
	"signals":       signals,
	"stubborn":      stubborn,
	"orphan-run":    orphanRun,
	"orphan-status": orphanStatus,
	"become":        replace,
	memberWord:      member,
}

// engines are the names under which the stand-in plays an agent.
var engines = []string{"claude", "codex", "gemini", "agy", "pi"}

func main() {
	args := os.Args[1:]
	if slices.Contains(engines, calledAs()) && !known(args) {
		os.Exit(report(engine(args)))
	}
	os.Exit(report(play(args)))
}

// calledAs is the name by which the stand-in was called.
func calledAs() string { return strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") }

func known(args []string) bool {
	return len(args) > 0 && (steps[args[0]] != nil || lastSteps[args[0]] != nil)
}

// status ends the stand-in with a number.
type status int

func (s status) Error() string { return "exit " + strconv.Itoa(int(s)) }

func report(err error) int {
	if err == nil {
		return 0
	}
	if s := status(0); errors.As(err, &s) {
		return int(s)
	}
	fmt.Fprintln(os.Stderr, "fakeagent:", err)
	return 99
}

// play takes one step after the other.
func play(args []string) error {
	for len(args) > 0 {
		if last := lastSteps[args[0]]; last != nil {
			return last(args[1:])
		}
		do := steps[args[0]]
		if do == nil {
			return fmt.Errorf("no step is called %q", args[0])
		}
		end := slices.Index(args, "then")
		if end < 0 {
			end = len(args)
		}
		if err := do(args[1:end]); err != nil {
			return err
		}
		args = args[min(end+1, len(args)):]
	}
	return nil
}

// engine plays an agent that was called by its own command line: what it does
// comes from FAKEAGENT, so that the command line can be any.
func engine(args []string) error {
	if slices.Contains(args, "--version") {
		fmt.Println(calledAs(), "0.0.0 (stand-in)")
		return nil
	}
	if script := os.Getenv("FAKEAGENT"); script != "" {
		return play(strings.Fields(script))
	}
	fmt.Println(calledAs(), "did nothing")
	return nil
}

// word is the argument at i, or otherwise.
func word(args []string, i int, otherwise string) string {
	if i < len(args) {
		return args[i]
	}
	return otherwise
}

func duration(text string) (time.Duration, error) {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(seconds) * time.Second, nil
	}
	return time.ParseDuration(text)
}

// life bounds how long anything of a stand-in stays by itself, so that a test
// that fails leaves nothing for good.
func life() time.Duration {
	if d, err := duration(os.Getenv("FAKEAGENT_LIFE")); err == nil {
		return d
	}
	return 2 * time.Minute
}

func sleep(args []string) error {
	d, err := duration(word(args, 0, life().String()))
	if err == nil {
		time.Sleep(d)
	}
	return err
}

func touch(args []string) error {
	for _, path := range args {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

func exit(args []string) error {
	n, err := strconv.Atoi(word(args, 0, "0"))
	if err != nil {
		return err
	}
	return status(n)
}

func printWords(args []string) error {
	_, err := fmt.Println(strings.Join(args, " "))
	return err
}

func warn(args []string) error {
	_, err := fmt.Fprintln(os.Stderr, strings.Join(args, " "))
	return err
}

// line appends one line to a file in one write, so that lines of several
// processes never mix.
func line(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text + "\n")
	return errors.Join(err, f.Close())
}

// logged writes the start to FILE, holds, and writes the end.
func logged(args []string) error {
	if len(args) == 0 {
		return errors.New("log FILE [id ID] [hold D]")
	}
	path, id, hold := args[0], strconv.Itoa(os.Getpid()), time.Duration(0)
	if run := os.Getenv("HANDSEL_RUN"); run != "" {
		id = run
	}
	for i := 1; i+1 < len(args); i += 2 {
		switch args[i] {
		case "id":
			id = args[i+1]
		case "hold":
			var err error
			if hold, err = duration(args[i+1]); err != nil {
				return err
			}
		}
	}
	event := func(kind string) error {
		return line(path, fmt.Sprintf("%s %s %d %d %s", kind, id, monotonic(), os.Getpid(), calledAs()))
	}
	if err := event("S"); err != nil {
		return err
	}
	time.Sleep(hold)
	return event("E")
}

// pid notes who we are.
func pid(args []string) error {
	if len(args) == 0 {
		return errors.New("pid FILE [NAME]")
	}
	return note(args[0], word(args, 1, calledAs()))
}

func note(path, name string) error {
	return line(path, fmt.Sprintf("%s %d %d", name, os.Getpid(), startTicks(os.Getpid())))
}

// until waits until a file has that many lines.
func until(args []string) error {
	if len(args) == 0 {
		return errors.New("until FILE [LINES]")
	}
	want, err := strconv.Atoi(word(args, 1, "1"))
	if err != nil {
		return err
	}
	return reach(args[0], want)
}

func reach(path string, lines int) error {
	for end := time.Now().Add(life()); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		text, _ := os.ReadFile(path)
		if strings.Count(string(text), "\n") >= lines {
			return nil
		}
	}
	return fmt.Errorf("%s never had %d lines", path, lines)
}

func stdin([]string) error {
	sum := sha256.New()
	n, err := io.Copy(sum, os.Stdin)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%d %x\n", n, sum.Sum(nil))
	return err
}

// yes writes exactly N bytes.
func yes(args []string) error {
	n, err := strconv.ParseInt(word(args, 0, "0"), 10, 64)
	if err != nil {
		return err
	}
	out := os.Stdout
	if word(args, 1, "") == "stderr" {
		out = os.Stderr
	}
	block := []byte(strings.Repeat("y\n", 32<<10))
	for n > 0 {
		m, err := out.Write(block[:min(n, int64(len(block)))])
		if err != nil {
			return err
		}
		n -= int64(m)
	}
	return nil
}

func cwd([]string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	_, err = fmt.Println(dir)
	return err
}

// environment prints all variables, or the values of those named.
func environment(args []string) error {
	if len(args) == 0 {
		for _, entry := range os.Environ() {
			fmt.Println(strconv.Quote(entry))
		}
		return nil
	}
	for _, name := range args {
		if value, ok := os.LookupEnv(name); ok {
			fmt.Println(name + "=" + strconv.Quote(value))
		} else {
			fmt.Println(name, "is not set")
		}
	}
	return nil
}

// arguments prints one argument a line, quoted (C109).
func arguments(args []string) error {
	for _, arg := range args {
		fmt.Println(strconv.Quote(arg))
	}
	return nil
}
