package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel"
)

// keeper is a dispatcher in a home of its own. It is nobody's child: it must be
// able to wait for a slot that we hold.
type keeper struct {
	program string
	path    string            // of its home
	vars    map[string]string // of its environment, ours included
	files   int               // limit of open files; 0 = ours
	home    *handsel.Home     // opened as a launcher does

	pid   int // 0 = it does not run
	pidfd int
}

// keep makes a home in dispatcher mode with a cap of all agents, without
// starting anything. driver is the command of its drivers, nil for handsel's.
func (b *bench) keep(limit int, driver ...string) (*keeper, error) {
	path, conf := b.home(), filepath.Join(b.dir(), "config.toml")
	text := fmt.Sprintf("[admission]\nmode = \"dispatcher\"\n[pools]\nall = %d\n", limit)
	if len(driver) > 0 {
		words := make([]string, len(driver))
		for i, word := range driver {
			words[i] = strconv.Quote(word)
		}
		text += "[dispatch]\ndriver = [" + strings.Join(words, ", ") + "]\n"
	}
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	k := &keeper{program: b.handsel, path: path, vars: map[string]string{"HANDSEL_HOME": path, "HANDSEL_CONFIG": conf}}
	var err error
	k.home, err = handsel.OpenWith(func(name string) string { return k.vars[name] })
	return k, err
}

// keeping is keep, and the dispatcher started.
func (b *bench) keeping(ctx context.Context, limit int, driver ...string) (*keeper, error) {
	k, err := b.keep(limit, driver...)
	if err == nil {
		err = k.start(ctx)
	}
	return k, err
}

// command is handsel with the words given, in the keeper's home.
func (k *keeper) command(ctx context.Context, words ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, k.program, words...)
	if k.files > 0 {
		words = append([]string{"-c", "ulimit -n " + strconv.Itoa(k.files) + ` && exec "$@"`, "sh", k.program}, words...)
		cmd = exec.CommandContext(ctx, "sh", words...)
	}
	cmd.Env = environ(k.vars)
	return cmd
}

// start starts the dispatcher and returns when it listens.
func (k *keeper) start(ctx context.Context) error {
	cmd := k.command(ctx, "dispatch", "--background")
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("handsel dispatch: %w: %s", err, strings.TrimSpace(said.String()))
	}
	if _, err := fmt.Sscanf(string(text), "dispatching (pid %d)", &k.pid); err != nil {
		return fmt.Errorf("handsel dispatch says %q: %w", text, err)
	}
	if k.pidfd, err = unix.PidfdOpen(k.pid, 0); err != nil {
		k.pid = 0
		return fmt.Errorf("the dispatcher is gone: %w", err)
	}
	return nil
}

// kill kills the dispatcher and returns when it has ended.
func (k *keeper) kill() {
	if k == nil || k.pid == 0 {
		return
	}
	_ = unix.PidfdSendSignal(k.pidfd, unix.SIGKILL, nil, 0)
	for !k.over(time.Second) {
	}
	unix.Close(k.pidfd)
	k.pid = 0
}

// over tells whether the dispatcher has ended, waiting for it so long.
func (k *keeper) over(wait time.Duration) bool {
	n, _ := unix.Poll([]unix.PollFd{{Fd: int32(k.pidfd), Events: unix.POLLIN}}, int(wait.Milliseconds()))
	return n == 1
}

// fill has n rows accepted, by so many clients at once, each in a lane of its
// own. Nothing of them may run: the caller holds the slots.
func (k *keeper) fill(ctx context.Context, from, n, clients int) error {
	next, errs := make(chan int), make(chan error, clients)
	for range clients {
		go func() {
			var err error
			for i := range next {
				if err == nil {
					err = k.enqueue(ctx, laneName(i), "true")
				}
			}
			errs <- err
		}()
	}
	for i := range n {
		next <- from + i
	}
	close(next)
	var first error // the others are like it
	for range clients {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

func laneName(i int) string { return "bench/lane-" + strconv.Itoa(i) }

// enqueue enqueues a command, whose environment is kept small: what it holds
// depends on who measures.
func (k *keeper) enqueue(ctx context.Context, name string, argv ...string) error {
	_, err := k.home.Enqueue(ctx, name, argv, handsel.EnqueueOptions{Env: []string{"PATH=" + os.Getenv("PATH")}})
	return err
}

// rows are how many rows wait, and how many attempts go on, by the dispatcher's
// own word.
func (k *keeper) rows(ctx context.Context) (waiting, going int, err error) {
	s, err := k.home.DispatcherStatus(ctx)
	if err != nil {
		return 0, 0, err
	}
	return s.Rows["queued"] + s.Rows["starting"], s.Attempts, nil
}

// occupy takes the only slot of a home, for us.
func occupy(ctx context.Context, h *handsel.Home) (*handsel.Lease, error) {
	return h.Acquire(ctx, handsel.Start{Wait: 10 * time.Second})
}
