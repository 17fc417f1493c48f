package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/handsel/handsel"
)

// gapless measures G14: while one lane goes from launcher to dispatcher to
// driver a thousand times, another tries to take its lock every millisecond.
func (b *bench) gapless(ctx context.Context) error {
	r, err := b.relay(ctx)
	if err != nil {
		return err
	}
	defer r.close()
	k, err := b.keeping(ctx, 1, r.command()...)
	if err != nil {
		return err
	}
	defer k.kill()
	rounds := b.pick(1000, 200)
	p := &probe{path: filepath.Join(k.path, "lanes", "probed.lock")}
	p.ending.Store(new(string))
	quit := make(chan struct{})
	var probing sync.WaitGroup
	probing.Go(func() { p.run(quit) })
	for range rounds {
		if err = k.pass(ctx, r, p); err != nil {
			break
		}
	}
	close(quit)
	probing.Wait()
	if err = errors.Join(err, p.err); err != nil {
		return err
	}
	b.report.none("G14", fmt.Sprintf("%d hand-overs, %d probes, %d of them while it was owned: the lane was free", rounds, p.all, p.held), p.free, "")
	return nil
}

// pass has the lane handed from us to the dispatcher and back to us.
func (k *keeper) pass(ctx context.Context, r *relay, p *probe) error {
	err := until(ctx, 10*time.Second, func() (bool, error) {
		err := k.enqueue(ctx, "probed", "true")
		no, is := errors.AsType[*handsel.Declined](err)
		if is && no.Reason.Retryable { // the last attempt's end is not written yet
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	o, err := r.next(30 * time.Second)
	if err != nil {
		return err
	}
	c, err := o.claim(ctx, k.home)
	if err != nil {
		return err
	}
	id := c.Attempt()
	p.ending.Store(&id)
	return c.Abandon()
}

// probe tries to take a lane's lock, again and again. A record that names an
// attempt was written by whoever had the lock, so from then on until we end the
// attempt the lock must not be had.
type probe struct {
	path            string
	ending          atomic.Pointer[string] // the attempt that may be over
	all, held, free int
	err             error
}

func (p *probe) run(quit <-chan struct{}) {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := p.once(); err != nil && !errors.Is(err, unix.ENOENT) {
				p.err = err
				return
			}
		case <-quit:
			return
		}
	}
}

func (p *probe) once() error {
	fd, err := unix.Open(p.path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	p.all++
	said := make([]byte, 4096)
	n, err := unix.Pread(fd, said, 0)
	if err != nil {
		return err
	}
	_, rest, named := bytes.Cut(said[:n], []byte(`"attempt":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	locked := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case !named:
	case errors.Is(locked, unix.EWOULDBLOCK):
		p.held++
	case locked != nil:
		return locked
	case *p.ending.Load() != string(id):
		p.free++
	}
	return nil
}
