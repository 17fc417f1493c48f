package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/record"
)

// What G15 asks for.
const (
	streamShare = 3   // how many times cat's time the reading may take
	streamPeak  = 200 // MB that all supervisors take together
	chatters    = 30
	chatterRate = 5000 // events a second, of each
)

// streams measures G15: what it takes to keep and to read what agents print.
func (b *bench) streams(ctx context.Context) error {
	if err := b.streamRate(ctx); err != nil {
		return err
	}
	return b.streamFlood(ctx)
}

// claude makes a stand-in for that engine out of a line of shell, in a directory
// of its own, and returns the command line by which it prints its stream.
func (b *bench) claude(script string) ([]string, error) {
	path := filepath.Join(b.dir(), "claude")
	err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o700)
	return []string{path, "-p", "--output-format", "stream-json", "--verbose"}, err
}

// recorded is `handsel run --record -- argv` in a home.
func (b *bench) recorded(ctx context.Context, home string, argv []string, env ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.handsel, append([]string{"run", "--record", "--"}, argv...)...)
	cmd.Env = append(environ(settings(home, 0)), env...)
	return cmd
}

// streamRate measures the bytes a second: one agent that prints as fast as it can,
// its output kept and read, against cat into a pipe and from there into a file.
func (b *bench) streamRate(ctx context.Context) error {
	dir := b.dir()
	source, kept := filepath.Join(dir, "stream"), filepath.Join(dir, "kept")
	size, events, err := writeConversation(source, int64(b.pick(256, 96))<<20)
	if err != nil {
		return err
	}
	argv, err := b.claude("exec cat " + source)
	if err != nil {
		return err
	}
	last := ""
	got, err := b.race(ctx,
		way{"cat", 1, timed(func() error {
			_ = os.Remove(kept)
			return exec.CommandContext(ctx, "sh", "-c", "cat "+source+" | cat > "+kept).Run()
		})},
		way{"handsel run --record", 1, timed(func() error {
			last = b.home()
			return b.recorded(ctx, last, argv).Run()
		})},
	)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d MB of events kept and read, %s/s", size/1e6, megabytes(float64(size)/got[1].p50.Seconds()))
	b.report.against("G15", what, got[1].p50, "cat FILE | cat > KEPT", got[0].p50, streamShare)
	r, err := onlyRun(last)
	if err != nil {
		return err
	}
	missing := events - r.events
	if r.run.Result != record.Succeeded {
		missing++
	}
	b.report.none("G15", fmt.Sprintf("… events of %d that are missing", events), missing, "")
	return nil
}

// writeConversation writes what claude prints in a long turn, in which the model
// reads one file after the other: 4 KiB each, and every sixteenth 64 KiB. Each file
// stands in its line twice, as claude has it.
func writeConversation(path string, size int64) (written int64, events int, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	line := func(format string, args ...any) {
		n, _ := fmt.Fprintf(w, format+"\n", args...) // told by Flush
		written += int64(n)
	}
	code := strings.Repeat(`\tif err != nil {\n\t\treturn fmt.Errorf(\"read %s: %w\", path, err)\n\t}\n`, 60) // 4 KiB
	line(`{"type":"system","subtype":"init","session_id":"0c4a7f06","model":"claude","tools":["Bash","Read"]}`)
	for i := 0; written < size; i++ {
		line(`{"type":"assistant","message":{"id":"msg_%d","type":"message","role":"assistant","content":[{"type":"text","text":"Step %d: the next file is read, and what it says about errors compared."}],"usage":{"input_tokens":4,"output_tokens":30}},"parent_tool_use_id":null,"session_id":"0c4a7f06","uuid":"%032x"}`, i, i, i)
		line(`{"type":"assistant","message":{"id":"msg_%d","type":"message","role":"assistant","content":[{"type":"tool_use","id":"toolu_%d","name":"Read","input":{"file_path":"internal/a%d.go"}}]},"parent_tool_use_id":null,"session_id":"0c4a7f06","uuid":"%032x"}`, i, i, i, i)
		content := code
		if i%16 == 0 {
			content = strings.Repeat(code, 16)
		}
		line(`{"type":"user","message":{"role":"user","content":[{"tool_use_id":"toolu_%d","type":"tool_result","content":"%s"}]},"parent_tool_use_id":null,"session_id":"0c4a7f06","uuid":"%032x","tool_use_result":{"type":"text","file":{"filePath":"internal/a%d.go","content":"%s","numLines":180,"startLine":1,"totalLines":180}}}`, i, content, i, i, content)
		events += 2
	}
	line(`{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"0c4a7f06","num_turns":9}`)
	return written, events + 2, w.Flush()
}

// readRun is a run's record and how many events were kept of it.
type readRun struct {
	run    record.Run
	dir    string
	events int
}

// onlyRun reads the one run of a home.
func onlyRun(home string) (readRun, error) {
	var r readRun
	found, err := filepath.Glob(filepath.Join(home, "runs", "*", "*", "run.json"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d runs in %s", len(found), home)
	}
	if err != nil {
		return r, err
	}
	r.dir = filepath.Dir(found[0])
	text, err := os.ReadFile(found[0])
	if err == nil {
		err = json.Unmarshal(text, &r.run)
	}
	if err != nil {
		return r, err
	}
	kept, err := os.ReadFile(filepath.Join(r.dir, "events.ndjson"))
	r.events = bytes.Count(kept, []byte("\n"))
	return r, err
}

// streamFlood measures the rest: many agents at once, each printing many small
// events one by one, and what all of their supervisors take while they do.
func (b *bench) streamFlood(ctx context.Context) error {
	span := b.pick(20, 6)
	argv, err := b.claude("exec " + b.self + " " + roleChatter)
	if err != nil {
		return err
	}
	homes, cmds := make([]string, chatters), make([]*exec.Cmd, chatters)
	for i := range cmds {
		homes[i] = b.home()
		cmds[i] = b.recorded(ctx, homes[i], argv, chatterSpan+"="+strconv.Itoa(span))
	}
	start := time.Now()
	if err := startAll(cmds); err != nil {
		return err
	}
	defer killAll(cmds)
	peak, err := peakOf(ctx, pids(cmds), time.Duration(span)*time.Second)
	if err != nil {
		return err
	}
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("chatter %d: %w", i, err)
		}
	}
	took := time.Since(start)
	events, wrong := 0, 0
	for _, home := range homes {
		r, err := onlyRun(home)
		if err != nil {
			return err
		}
		bad, err := misplaced(r, span*chatterRate)
		if err != nil {
			return err
		}
		events += r.events
		wrong += bad
	}
	b.report.add(row{
		goal: "G15", what: fmt.Sprintf("%d agents × %d events/s for %d s: PSS of all supervisors", chatters, chatterRate, span),
		ours: megabytes(peak), beside: fmt.Sprintf("%.0f events/s came", float64(events)/took.Seconds()),
		target: fmt.Sprintf("≤ %d MB", streamPeak), verdict: judge(peak <= streamPeak*1e6),
	})
	b.report.none("G15", fmt.Sprintf("… events of %d that are missing or out of place", events), wrong, "")
	return nil
}

// peakOf is the most that living processes take together within span, in bytes.
func peakOf(ctx context.Context, pids []int, span time.Duration) (peak float64, err error) {
	for end := time.Now().Add(span); time.Now().Before(end); {
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return 0, err
		}
		now, err := memory(pids, "Pss")
		if errors.Is(err, fs.ErrNotExist) {
			return peak, nil // one has ended, and the others soon will
		}
		if err != nil {
			return 0, err
		}
		peak = max(peak, now)
	}
	return peak, nil
}

// misplaced counts the events that are not where they were printed.
func misplaced(r readRun, most int) (wrong int, err error) {
	f, err := os.Open(filepath.Join(r.dir, "events.ndjson"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	next := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var e struct{ Kind, Text string }
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return 0, fmt.Errorf("%s: %w", f.Name(), err)
		}
		if e.Kind != "text" {
			continue
		}
		if e.Text != strconv.Itoa(next) {
			wrong++
		}
		next++
	}
	if next != most || r.run.Result != record.Succeeded {
		wrong += max(most-next, 1)
	}
	return wrong, nil
}

// chatterSpan says in its environment for how many seconds a chatter speaks.
const chatterSpan = "BENCH_CHATTER"

// chatter prints small events one by one, as many a second as it is taken, up to
// chatterRate, and then a result.
func chatter() error {
	span, err := strconv.Atoi(os.Getenv(chatterSpan))
	if err != nil {
		return fmt.Errorf("%s: %w", chatterSpan, err)
	}
	start, every := time.Now(), time.Second/chatterRate
	var line []byte
	for i := range span * chatterRate {
		if due := start.Add(time.Duration(i) * every); time.Until(due) > 0 {
			time.Sleep(max(time.Until(due), 2*time.Millisecond)) // a few at a time: no clock is finer when many sleep
		}
		line = append(line[:0], `{"type":"assistant","message":{"content":[{"type":"text","text":"`...)
		line = strconv.AppendInt(line, int64(i), 10)
		line = append(line, `"}]},"parent_tool_use_id":null,"session_id":"0c4a7f06"}`+"\n"...)
		if _, err := os.Stdout.Write(line); err != nil {
			return err
		}
	}
	_, err = fmt.Println(`{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"0c4a7f06"}`)
	return err
}
