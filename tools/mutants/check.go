package main

import (
	"fmt"
	"strings"
	"time"
)

// check is one run of one package's tests that must notice a fault.
type check struct {
	dir     string // below the root
	run     string // -test.run, "" = all
	skip    string // -test.skip
	tags    string
	short   bool
	timeout time.Duration // a run that takes longer hangs, and has noticed
}

// usualTimeout is some ten times what the slowest of the usual checks takes on
// two processors.
const usualTimeout = 40 * time.Second

// parseCheck reads "DIR [-run RE] [-skip RE] [-tags T] [-short] [-timeout D]".
func parseCheck(text string) (check, error) {
	words := strings.Fields(text)
	if len(words) == 0 || strings.HasPrefix(words[0], "-") {
		return check{}, fmt.Errorf("test %q names no package", text)
	}
	c := check{dir: strings.Trim(strings.TrimPrefix(words[0], "./"), "/"), timeout: usualTimeout}
	if c.dir == "" {
		c.dir = "."
	}
	for words = words[1:]; len(words) > 0; words = words[1:] {
		if words[0] == "-short" {
			c.short = true
			continue
		}
		if len(words) < 2 {
			return check{}, fmt.Errorf("test %q: %s wants a value", text, words[0])
		}
		var err error
		switch words[0] {
		case "-run":
			c.run = words[1]
		case "-skip":
			c.skip = words[1]
		case "-tags":
			c.tags = words[1]
		case "-timeout":
			c.timeout, err = time.ParseDuration(words[1])
		default:
			err = fmt.Errorf("unknown flag %s", words[0])
		}
		if err != nil {
			return check{}, fmt.Errorf("test %q: %w", text, err)
		}
		words = words[1:]
	}
	return c, nil
}

// args are those of the test binary.
func (c check) args() []string {
	args := []string{"-test.failfast", "-test.timeout=" + c.timeout.String()}
	if c.run != "" {
		args = append(args, "-test.run="+c.run)
	}
	if c.skip != "" {
		args = append(args, "-test.skip="+c.skip)
	}
	if c.short {
		args = append(args, "-test.short")
	}
	return args
}

func (c check) String() string {
	text := c.dir
	for _, w := range []struct{ flag, value string }{{"-run", c.run}, {"-skip", c.skip}, {"-tags", c.tags}} {
		if w.value != "" {
			text += " " + w.flag + " " + w.value
		}
	}
	if c.short {
		text += " -short"
	}
	return text
}
