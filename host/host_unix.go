//go:build unix

package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/user"
	"sync"
	"time"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/internal/attempt"
	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/dispatch"
	"github.com/handsel/handsel/internal/failpoint"
	"github.com/handsel/handsel/internal/handoff"
	"github.com/handsel/handsel/internal/home"
	"github.com/handsel/handsel/internal/lease"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/notify"
)

// Options say how a dispatcher works. The zero value is usable by a program that
// sets Driver.
type Options struct {
	// Driver is the command that claims what is admitted, unless the
	// configuration or a row names another. It finds its token at the descriptor
	// that HANDSEL_TOKEN_FD names; `handsel drive` is one.
	Driver  []string
	Version string       // shown by status
	Log     *slog.Logger // nil: nowhere
	Ready   func()       // called once it listens

	// Takeover relieves the dispatcher that runs, without a gap, instead of
	// refusing to run beside it (L21).
	Takeover bool

	// ClaimWindow is how long an offer stands; 0 is the 60 s of L15a.
	ClaimWindow time.Duration
}

// Running reports that another dispatcher has the home; it was not touched.
type Running = dispatch.Running

// Serve runs the dispatcher of h until ctx ends, or until it is asked to stop
// or is relieved. Rows survive, and so does what runs. The error is *Running
// when another has the home, and those of handsel.Home.MayDispatch.
func Serve(ctx context.Context, h *handsel.Home, o Options) error {
	if err := h.MayDispatch(); err != nil {
		return err
	}
	conf, err := h.Dispatching()
	if err != nil {
		return err
	}
	s := &server{home: h, options: o}
	cfg := s.config(conf)
	if o.Takeover {
		err := dispatch.Takeover(ctx, cfg, func() {
			_ = handoff.Notify(fmt.Sprintf("MAINPID=%d\n%s", os.Getpid(), handoff.NotifyReady))
			if o.Ready != nil {
				o.Ready()
			}
		})
		if errors.As(err, new(*home.Nobody)) {
			return &handsel.NoDispatcher{Home: h.Path()}
		}
		return err
	}
	d, err := dispatch.Open(ctx, cfg)
	if err != nil {
		return err
	}
	hand, api, err := handoff.Activated(cfg.Home) // whether they are the home's is only sure under its lock
	if err != nil {
		cfg.Log.Warn("systemd's sockets are not used", "error", err)
	}
	return d.Serve(ctx, dispatch.Sockets{Handoff: hand, API: api, Ready: func() {
		_ = handoff.Notify(handoff.NotifyReady)
		if o.Ready != nil {
			o.Ready()
		}
	}, Leaving: func() { _ = handoff.Notify(handoff.NotifyStopping) }})
}

// server puts the library's rooms at the dispatcher's disposal.
type server struct {
	home    *handsel.Home
	options Options

	mu   sync.Mutex
	conf *handsel.Dispatching // as last read
}

// dispatching is what the configuration says now. It is asked for every row, so
// it is read only where it may have changed.
func (s *server) dispatching() (*handsel.Dispatching, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conf != nil && !s.conf.Changed() {
		return s.conf, nil
	}
	conf, err := s.home.Dispatching()
	if err == nil {
		s.conf = conf
	}
	return conf, err
}

func (s *server) config(conf *handsel.Dispatching) dispatch.Config {
	cfg := dispatch.Config{
		Home:    home.Dir{Path: s.home.Path(), From: s.home.From()},
		Version: s.options.Version, Log: s.options.Log, Driver: s.options.Driver, Env: driverEnv(s.home.Path()),
		Admit: s.admit, Mode: s.mode, Limit: s.limit,
		Metrics: conf.Metrics, Pools: s.pools, Teller: s.teller(),
		Starting: conf.Starting, ClaimWindow: s.options.ClaimWindow, KeepDays: conf.KeepDays, KeepBytes: conf.KeepSize,
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if len(conf.Driver) > 0 {
		cfg.Driver = conf.Driver
	}
	return cfg
}

// mode is asked at every enqueue: the configuration may have been changed.
func (s *server) mode() error {
	conf, err := s.dispatching()
	if err != nil {
		return err
	}
	if conf.Mode != handsel.ModeDispatcher {
		return errors.New("this home is in waiter mode (handsel config set admission.mode dispatcher)")
	}
	return nil
}

// limit is the cap that `all` has where nobody set one; 0 where somebody did.
func (s *server) limit() int {
	if conf, err := s.dispatching(); err == nil && conf.AllIsSet {
		return 0
	}
	return handsel.QueuedAll()
}

// pools is what metrics tell of the pools.
func (s *server) pools(ctx context.Context) (pools []dispatch.Pool) {
	snap := s.home.Status(ctx)
	for _, name := range snap.Order() {
		p := snap.Pools[name]
		pools = append(pools, dispatch.Pool{Name: name, Held: p.Held, Cap: p.Effective})
	}
	return pools
}

// teller tells the commands of the configuration, as it is at each change.
func (s *server) teller() *notify.Teller {
	return &notify.Teller{
		Rules: func() []config.Notify {
			conf, err := s.dispatching()
			if err != nil {
				return nil // a start says what is wrong with it
			}
			return conf.Notify
		},
		Run:  s.home.TellCommand,
		Said: func(text string) { s.log().Warn(text) },
	}
}

func (s *server) log() *slog.Logger {
	if s.options.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.options.Log
}

// forever is longer than any wait.
const forever = time.Duration(math.MaxInt64 / 4)

// admit stands in line for a row as any start does, at the row's own place.
func (s *server) admit(ctx context.Context, r *attempt.Row, told func(lease.Waiting)) (*lease.Lease, error) {
	p := r.Placement
	return s.home.Acquire(ctx, handsel.Start{
		Engine: p.Engine, Account: p.Account, Keeps: true, Workload: p.Workload, Pools: p.Pools, Wait: forever, Priority: r.Priority, Arrived: arrived(r),
		Run: r.ID, Argv0: r.Argv0, Caps: p.Caps, AllElse: s.limit(), Tie: r.ID, OnWait: told,
	})
}

// arrived is when a row arrived, on the clock of this boot: one of an earlier
// boot arrived before it began (C14).
func arrived(r *attempt.Row) time.Duration {
	if r.BootID == machine.BootID() && r.BootStartNS > 0 {
		return time.Duration(r.BootStartNS)
	}
	epoch := machine.Now().Add(-machine.SinceBoot())
	if d := r.QueueStart.Sub(epoch); d != 0 {
		return d
	}
	return 1
}

// driverEnv is all of the environment that a driver gets: nothing of what
// happened to be set where the dispatcher was started reaches an agent (C051,
// C052).
func driverEnv(path string) []string {
	env := []string{home.Variable + "=" + path}
	for _, name := range append([]string{"PATH", "LANG", "TZ", "HANDSEL_CONFIG"}, failpoint.Variables()...) {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	if u, err := user.Current(); err == nil {
		env = append(env, "USER="+u.Username)
	}
	if dir, err := home.UserHome(); err == nil {
		env = append(env, "HOME="+dir)
	}
	return env
}
