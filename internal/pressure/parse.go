package pressure

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path"
	"strconv"
	"strings"
)

var errNoNumber = errors.New("it holds no number where one must be")

// available is MemAvailable of /proc/meminfo, in bytes.
func available(text []byte) (int64, error) {
	for line := range bytes.Lines(text) {
		name, value, ok := strings.Cut(string(line), ":")
		if !ok || strings.TrimSpace(name) != "MemAvailable" {
			continue
		}
		fields := strings.Fields(value)
		if len(fields) != 2 || fields[1] != "kB" {
			return 0, errNoNumber
		}
		n, err := whole(fields[0])
		if err != nil || n > math.MaxInt64>>10 {
			return 0, errNoNumber
		}
		return n << 10, nil
	}
	return 0, errors.New("it has no MemAvailable")
}

// stalls are the shares of the last ten seconds in which some, or all, tasks
// stalled, in percent: avg10 of a file in /proc/pressure. Not every resource
// has a line for all.
func stalls(text []byte) (some, full float64, err error) {
	some, full = -1, -1
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 || fields[0] != "some" && fields[0] != "full" {
			continue
		}
		value, ok := strings.CutPrefix(fields[1], "avg10=")
		share, err := decimal(value)
		if !ok || err != nil || share > 100 {
			return 0, 0, errNoNumber
		}
		if fields[0] == "some" {
			some = share
		} else {
			full = share
		}
	}
	if some < 0 {
		return 0, 0, errors.New(`it has no line "some avg10="`)
	}
	return some, max(full, 0), nil
}

// loadavg is the load of the last minute.
func loadavg(text []byte) (float64, error) {
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return 0, errNoNumber
	}
	return decimal(fields[0])
}

// decimal reads a number as the kernel writes it: no sign, no exponent, finite.
func decimal(text string) (float64, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	if whole == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, errNoNumber
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(n, 0) {
		return 0, errNoNumber
	}
	return n, nil
}

func whole(text string) (int64, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, errNoNumber
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errNoNumber
	}
	return n, nil
}

// maxCPUs is more than any kernel has: what names more is no list of ours.
const maxCPUs = 1 << 16

// online counts the processors of a list such as 0-3,8.
func online(text []byte) (int, error) {
	n := 0
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := whole(first)
		to := from
		if err == nil && isRange {
			to, err = whole(last)
		}
		if err != nil || to < from || to >= maxCPUs {
			return 0, errNoNumber
		}
		n += int(to-from) + 1
		if n > maxCPUs {
			return 0, errNoNumber
		}
	}
	return n, nil
}

// own are a process's groups by /proc/self/cgroup: that of the unified
// hierarchy, and that of the memory controller where it is apart. Empty: none.
func own(text []byte) (unified, memory string) {
	for line := range bytes.Lines(text) {
		parts := strings.SplitN(strings.TrimRight(string(line), "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		where := path.Clean(parts[2]) // a group outside of our namespace begins with /..
		switch {
		case parts[0] == "0" && parts[1] == "":
			unified = where
		default:
			for controller := range strings.SplitSeq(parts[1], ",") {
				if controller == "memory" {
					memory = where
				}
			}
		}
	}
	return unified, memory
}

// upward is a group and those above it, up to the root.
func upward(group string) (all []string) {
	for {
		all = append(all, group)
		if group == "/" {
			return all
		}
		group = path.Dir(group)
	}
}

// unlimited is from where on a limit is none: version 1 has the largest number
// of whole pages in place of a word.
const unlimited = 1 << 60

// limitOf reads a limit of memory, in bytes. ok is false for none.
func limitOf(text []byte) (n int64, ok bool, err error) {
	word := string(bytes.TrimSpace(text))
	if word == "max" {
		return 0, false, nil
	}
	if n, err = whole(word); err != nil {
		// Version 1 has been seen to show a number beyond int64.
		if u, uerr := strconv.ParseUint(word, 10, 64); uerr == nil && u > math.MaxInt64 {
			return 0, false, nil
		}
		return 0, false, fmt.Errorf("%w", errNoNumber)
	}
	return n, n < unlimited, nil
}

// reclaimable is what the kernel would give up of a group's memory at need, in
// bytes, as it reckons MemAvailable of the host: file pages and slab that can
// be shrunk, but not what has to be written first. Memory file systems are not
// in it. prefix is that of a whole subtree's numbers in version 1.
func reclaimable(text []byte, prefix string) (int64, error) {
	var n int64
	found := false
	for line := range bytes.Lines(text) {
		fields := strings.Fields(string(line))
		if len(fields) != 2 {
			continue
		}
		name, ok := strings.CutPrefix(fields[0], prefix)
		if !ok {
			continue
		}
		sign := int64(1)
		switch name {
		case "inactive_file", "active_file", "slab_reclaimable":
		case "file_dirty", "file_writeback", "dirty", "writeback":
			sign = -1
		default:
			continue
		}
		v, err := whole(fields[1])
		if err != nil || v >= unlimited {
			return 0, errNoNumber
		}
		found = found || name == "inactive_file"
		n += sign * v
	}
	if !found {
		return 0, errors.New("it has no inactive_file")
	}
	return max(n, 0), nil
}
