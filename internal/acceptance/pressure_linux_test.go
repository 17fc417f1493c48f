package acceptance

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eatsMemory makes this test binary a process that touches as many bytes as its
// argument says, says so, and keeps them until its stdin ends.
func eatsMemory() bool {
	if filepath.Base(os.Args[0]) != eater {
		return false
	}
	n, err := strconv.Atoi(os.Args[1])
	if err == nil {
		var mem []byte
		if mem, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err == nil {
			for i := 0; i < n; i += 4096 {
				if i%(64<<20) == 0 {
					fmt.Print(".") // a machine may be slow to find it
				}
				mem[i] = 1
			}
			fmt.Println("eaten")
			_, _ = os.Stdin.Read(make([]byte, 1))
			return true
		}
	}
	fmt.Fprintln(os.Stderr, eater+":", err)
	os.Exit(1)
	return true
}

const eater = "eats-memory"

// available is the host's MemAvailable, in bytes.
func available(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if f := strings.Fields(string(line)); len(f) == 3 && f[0] == "MemAvailable:" {
			kib, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("the host has no MemAvailable")
	return 0
}

// TestMemoryHoldsAndLetsGo is P2 with the memory of this machine: a floor half a
// gigabyte below what is free, a process that takes three quarters, a start that
// is held by it, names memory and not a pool, and goes on once that has ended;
// and what runs is not touched. On a small machine all is smaller. Others use
// the memory too, so a round in which they moved the floor is played again.
func TestMemoryHoldsAndLetsGo(t *testing.T) {
	t.Parallel()
	unit := min(1<<29, available(t)/4)
	for round := 1; ; round++ {
		again := memoryRound(t, unit, round)
		if again == "" {
			return
		}
		t.Logf("round %d: %s", round, again)
		if round == 20 {
			t.Fatal("the memory of this machine moves too much for this test: ", again)
		}
	}
}

// memoryRound says why it must be played again, if so.
func memoryRound(t *testing.T, unit, round int) (again string) {
	t.Helper()
	p := ordinary(t)
	floor := available(t) - unit
	p = p.config(fmt.Sprintf("[pressure]\nmin_free_memory = %d\nmax_hold = \"1h\"\n[pools]\nall = 8\n", floor))
	_, running := p.holding("runs")

	eats := &exec.Cmd{Path: "/proc/self/exe", Args: []string{eater, strconv.Itoa(unit + unit/2)}}
	food := start(t, eats)
	for taken := ""; !strings.Contains(taken, "eaten"); {
		eventually(t, "more of the memory is taken", func() bool { return food.printed() != taken })
		taken = food.printed()
	}
	log := fmt.Sprint("log", round)
	held := start(t, p.agent("--wait", "10m", "--", "log", p.file(log)))
	eventually(t, "the start is held, or not", func() bool {
		return held.ended() || exists(p.file(log)) || len(p.status().Waiting) > 0 || available(t) >= floor
	})
	if s := p.status(); len(s.Waiting) != 1 || s.Waiting[0].Reason != "memory" {
		held.id.signal(unix.SIGTERM)
		food.closeIn()
		if now := available(t) - unit; now >= floor-unit/2 {
			return fmt.Sprintf("others gave memory back: %d bytes are free, and the floor is %d", now+unit, floor)
		}
		t.Fatalf("in line are %+v, with %d bytes free and a floor of %d; it said %q", s.Waiting, available(t), floor, held.said())
	}
	end, _, errs := ends(t, p.agent("--wait", "0", "--", "touch", p.file("never")))
	switch {
	case end == "exit 0" && available(t) >= floor-unit/8:
		again = "others gave memory back"
	case end != "exit 75" || exists(p.file("never")):
		t.Fatalf("beside it, another: %s, %s", end, errs)
	default:
		oneLine(t, errs, "of memory is free", "min_free_memory is", "the largest agents: pid "+strconv.Itoa(running.pid))
	}
	if !running.alive() {
		t.Error("what ran was ended")
	}
	out, _ := must(t, "exit 0", p.handsel("why", "pool:all"))
	if !strings.Contains(out, "memory: ") && again == "" && available(t) < floor-unit/8 {
		t.Errorf("why says %q", out)
	}

	food.closeIn()
	// It must be better than the floor by the margin, of which others may have
	// taken their part.
	const margin = 256 << 20
	for deadline := time.Now().Add(patience); !exists(p.file(log)); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			if available(t) < floor+margin {
				held.id.signal(unix.SIGTERM)
				return "others took the memory"
			}
			t.Fatalf("%d bytes are free, and it still waits: %q", available(t), held.said())
		}
	}
	if how := held.wait(); how != "exit 0" {
		t.Errorf("it ended by %s", how)
	}
	if !running.alive() {
		t.Error("what ran was ended")
	}
	return again
}
