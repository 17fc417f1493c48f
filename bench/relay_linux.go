package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/handsel/handsel"
)

//go:embed stamp/relay.c
var relaySource []byte

// relay is the driver of dispatchers that are measured without one: a small
// program that brings us its offer, so that we claim in its place.
type relay struct {
	program string
	socket  string
	at      *net.UnixListener
}

func (b *bench) relay(ctx context.Context) (*relay, error) {
	dir := b.dir()
	r := &relay{socket: filepath.Join(dir, "socket")}
	var err error
	if r.program, err = compile(ctx, dir, "relay", relaySource); err != nil {
		return nil, err
	}
	r.at, err = net.ListenUnix("unix", &net.UnixAddr{Name: r.socket, Net: "unix"})
	return r, err
}

func (r *relay) close() { r.at.Close() }

// command is what a dispatcher starts.
func (r *relay) command() []string { return []string{r.program, r.socket} }

// brought is an offer that was brought. Its program lives until done is called.
type brought struct {
	id, token string
	conn      net.Conn
}

func (o *brought) done() { o.conn.Close() }

// next waits for the next offer.
func (r *relay) next(wait time.Duration) (*brought, error) {
	if err := r.at.SetDeadline(time.Now().Add(wait)); err != nil {
		return nil, err
	}
	conn, err := r.at.Accept()
	if err != nil {
		return nil, err
	}
	said := make([]byte, 1024)
	n, err := conn.Read(said)
	words := strings.Fields(string(said[:n]))
	if err == nil && len(words) != 2 {
		err = fmt.Errorf("a driver brings %q", said[:n])
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &brought{words[0], words[1], conn}, nil
}

// claim claims what was brought.
func (o *brought) claim(ctx context.Context, h *handsel.Home) (*handsel.Claimed, error) {
	defer o.done()
	return h.Claim(ctx, handsel.ClaimOptions{Attempt: o.id, Token: o.token})
}

// bare starts the program as a dispatcher does and returns when its offer is
// here: what a driver costs that does nothing.
func (r *relay) bare() error {
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	defer out.Close()
	if _, err := out.WriteString("attempt\ntoken\n"); err != nil {
		return err
	}
	cmd := exec.Command(r.program, r.socket)
	cmd.ExtraFiles, cmd.SysProcAttr = []*os.File{in}, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	o, err := r.next(10 * time.Second)
	if err == nil {
		o.done()
	}
	return errors.Join(err, cmd.Wait())
}
