package hook

import (
	"fmt"
	"slices"
	"strings"
)

// around is how many lines are shown before and after a change.
const around = 3

// Diff is the change for people to read, as diff -u would show it: the one stretch
// of lines that differs. Lines are as they are in the file, not fit for a terminal.
func (c *Change) Diff() []string {
	before, after := lines(c.Before), lines(c.After)
	from := 0
	for from < min(len(before), len(after)) && before[from] == after[from] {
		from++
	}
	same := 0
	for same < min(len(before), len(after))-from && before[len(before)-1-same] == after[len(after)-1-same] {
		same++
	}
	start := max(from-around, 0)
	endBefore, endAfter := len(before)-same, len(after)-same
	tail := min(around, same)
	out := []string{
		name("---", c.Place.Path, c.New), name("+++", c.Place.Path, c.Gone),
		fmt.Sprintf("@@ -%s +%s @@", stretch(start, endBefore+tail), stretch(start, endAfter+tail)),
	}
	add := func(sign string, list []string) {
		for _, line := range list {
			out = append(out, sign+line)
		}
	}
	add(" ", before[start:from])
	add("-", before[from:endBefore])
	add("+", after[from:endAfter])
	add(" ", before[endBefore:endBefore+tail])
	return out
}

func name(sign, path string, none bool) string {
	if none {
		path = "/dev/null"
	}
	return sign + " " + path
}

// stretch is a range of lines as diff writes it.
func stretch(from, to int) string {
	switch to - from {
	case 0:
		return fmt.Sprintf("%d,0", from)
	case 1:
		return fmt.Sprint(from + 1)
	}
	return fmt.Sprintf("%d,%d", from+1, to-from)
}

func lines(data []byte) []string {
	list := slices.Collect(strings.SplitSeq(string(data), "\n"))
	if list[len(list)-1] == "" {
		list = list[:len(list)-1]
	}
	return list
}
