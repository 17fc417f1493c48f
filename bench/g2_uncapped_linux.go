package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// uncapped measures G2: where no cap is set, admission opens nothing but what
// could say otherwise, and costs no more than that.
func (b *bench) uncapped(ctx context.Context) error {
	home := b.home()
	asked, err := b.traceAdmission(ctx, home)
	if err != nil {
		return err
	}
	extra, opened := sortOut(asked, home)
	b.report.none("G2", "no cap: files opened besides configuration and holds/", len(extra), fmt.Sprintf("%d look-ups in all", len(asked)))
	b.report.note("G2: an admission without a cap opens %s%s.", strings.Join(opened, ", "), also(extra))

	h, err := open(home, 0)
	if err != nil {
		return err
	}
	n := b.pick(5000, 1000)
	got, err := b.race(ctx,
		way{"admission without a cap", n, timed(func() error { return admit(h) })},
		way{"the same look-ups, bare", n, timed(func() error { return replay(asked) })},
	)
	if err != nil {
		return err
	}
	b.report.atMost("G2", "no cap: admission + release", got[0].p50, 10*time.Microsecond, short(got[1].p50)+" same look-ups, bare")
	if _, err := os.Lstat(home); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the home was made although nothing is counted: %w", err)
	}
	return nil
}

func also(extra []string) string {
	if len(extra) == 0 {
		return ""
	}
	return "; not allowed of these: " + strings.Join(extra, ", ")
}

// lookup is one system call of a trace that names a path.
type lookup struct {
	call, path string
}

var named = regexp.MustCompile(`(\w+)\([^"]*"([^"]*)"`)

// traceAdmission lists what an admission without a cap asks the file system.
func (b *bench) traceAdmission(ctx context.Context, home string) ([]lookup, error) {
	trace := filepath.Join(b.dir(), "trace")
	cmd := exec.CommandContext(ctx, "strace", "-f", "-s", "4096", "-e", "trace=%file", "-o", trace, b.self, roleTraced)
	cmd.Env = environ(settings(home, 0))
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("strace: %w: %s", err, text)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		return nil, err
	}
	pieces := strings.Split(string(text), mark)
	if len(pieces) != 3 {
		return nil, errors.New("the trace lacks its marks")
	}
	var asked []lookup
	for _, m := range named.FindAllStringSubmatch(pieces[1], -1) {
		if m[1] != "newfstatat" || m[2] != "" {
			asked = append(asked, lookup{m[1], m[2]})
		}
	}
	// What begins after the last name is the second mark's own call.
	return asked, nil
}

// sortOut tells what was opened, and what of it should not have been.
func sortOut(asked []lookup, home string) (extra, opened []string) {
	for _, l := range asked {
		if !strings.HasPrefix(l.call, "open") || slices.Contains(opened, l.path) {
			continue
		}
		opened = append(opened, l.path)
		if filepath.Base(l.path) != "config.toml" && l.path != filepath.Join(home, "holds") {
			extra = append(extra, l.path)
		}
	}
	return extra, opened
}

// replay asks the same and does nothing with the answers.
func replay(asked []lookup) error {
	for _, l := range asked {
		if strings.HasPrefix(l.call, "open") {
			if fd, err := unix.Open(l.path, unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
				unix.Close(fd)
			}
			continue
		}
		var st unix.Stat_t
		_ = unix.Lstat(l.path, &st)
	}
	return nil
}
