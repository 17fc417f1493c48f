package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lane"
)

// clients is how many enqueue at once.
const clients = 64

// enqueues measures G7: a durable enqueue, by which the lock of its lane changes
// hands. The floor is one small write that a power loss does not undo; the
// neighbour keeps jobs in a log that it flushes at each, and no locks.
func (b *bench) enqueues(ctx context.Context) error {
	k, err := b.keeping(ctx, 1)
	if err != nil {
		return err
	}
	defer k.kill()
	held, err := occupy(ctx, k.home)
	if err != nil {
		return err
	}
	defer held.Release() //nolint:errcheck // the home is of no use any more
	bean, err := startBeanstalkd(ctx, b.dir())
	if err != nil {
		return err
	}
	defer bean.end()
	disk, err := b.flusher()
	if err != nil {
		return err
	}
	defer disk.close()

	single, many := b.pick(300, 60), b.pick(1920, 640)
	lanes := &freshLanes{at: home.Dir{Path: k.path}}
	if err := lanes.make(b.turns*(single+many) + 2*clients); err != nil {
		return err
	}
	if err := k.fill(ctx, lanes.take(clients), clients, clients); err != nil { // what is made once
		return err
	}
	got, err := b.race(ctx,
		way{"enqueue", single, timed(func() error { return k.enqueue(ctx, laneName(lanes.take(1)), "true") })},
		way{"pwrite and fdatasync", single, timed(disk.flush)},
		way{"enqueue by many", 1, timed(func() error { return k.fill(ctx, lanes.take(many), many, clients) })},
		way{"beanstalkd", 1, timed(func() error { return bean.put(many, clients) })},
	)
	if err != nil {
		return err
	}
	each := func(i int) time.Duration { return got[i].p50 / time.Duration(many) }
	b.report.against("G7", "durable enqueue with the lock handed over, one client, p50", got[0].p50, "pwrite + fdatasync of 4 KiB", got[1].p50, 2.5)
	b.report.atLeast("G7", fmt.Sprintf("… %d clients, enqueues in the time of one fdatasync", clients),
		float64(got[1].p50)/float64(each(2)), 1.2, short(each(2))+" each", short(got[1].p50)+" fdatasync")
	b.report.against("G7", "… each, beside a put", each(2), "beanstalkd, which flushes each", each(3), 1)
	return nil
}

// freshLanes are lanes that were used before and are free: a lane's file
// outlives its rows.
type freshLanes struct {
	at   home.Dir
	made int
	used int
}

func (l *freshLanes) make(n int) error {
	for range n {
		h, err := lane.Take(l.at, laneName(l.made), lane.Mine(lane.RoleRun))
		if err == nil {
			err = h.Release()
		}
		if err != nil {
			return err
		}
		l.made++
	}
	return nil
}

// take is the number of the first of n lanes that nobody has used.
func (l *freshLanes) take(n int) int {
	l.used += n
	return l.used - n
}

// flusher is a file of 4 KiB that is written again and again.
type flusher struct {
	fd   int
	page [4096]byte
}

func (b *bench) flusher() (*flusher, error) {
	fd, err := unix.Open(filepath.Join(b.dir(), "flushed"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	f := &flusher{fd: fd}
	return f, f.flush()
}

func (f *flusher) flush() error {
	f.page[0]++
	_, err := unix.Pwrite(f.fd, f.page[:], 0)
	return errors.Join(err, unix.Fdatasync(f.fd))
}

func (f *flusher) close() { unix.Close(f.fd) }

// beanstalkd is a server of our own with a log that is flushed at each job.
type beanstalkd struct {
	cmd    *exec.Cmd
	socket string
}

func startBeanstalkd(ctx context.Context, dir string) (*beanstalkd, error) {
	s := &beanstalkd{socket: filepath.Join(dir, "socket")}
	log := filepath.Join(dir, "log")
	if err := os.Mkdir(log, 0o700); err != nil {
		return nil, err
	}
	s.cmd = exec.CommandContext(ctx, "beanstalkd", "-l", "unix:"+s.socket, "-b", log, "-f0")
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	err := until(ctx, 10*time.Second, func() (bool, error) {
		conn, err := net.Dial("unix", s.socket)
		if err == nil {
			conn.Close()
		}
		return err == nil, nil
	})
	if err != nil {
		s.end()
	}
	return s, err
}

func (s *beanstalkd) end() { killAll([]*exec.Cmd{s.cmd}) }

// put puts n jobs of 500 bytes over so many connections.
func (s *beanstalkd) put(n, connections int) error {
	errs := make([]error, connections)
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() { errs[i] = s.putSome(n / connections) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (s *beanstalkd) putSome(n int) error {
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	in, body := bufio.NewReader(conn), strings.Repeat("x", 500)
	for range n {
		if _, err := fmt.Fprintf(conn, "put 0 0 60 %d\r\n%s\r\n", len(body), body); err != nil {
			return err
		}
		line, err := in.ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "INSERTED") {
			err = fmt.Errorf("beanstalkd says %q", line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
