package cli

import (
	"context"
	"errors"
	"fmt"
	"html"
	"iter"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
	"github.com/handsel/handsel/host"
	"github.com/handsel/handsel/internal/web"
)

// webJSON is the JSON of web: where it is.
type webJSON struct {
	V    int    `json:"v"`
	URL  string `json:"url"` // opens the page once
	Addr string `json:"addr"`
	Pid  int    `json:"pid"`
}

func (a *app) webCommand() *cobra.Command {
	var listen string
	var show, asJSON bool
	cmd := &cobra.Command{
		Use:   "web",
		Short: "serve a page to this machine's browsers: what runs, what waits and why, and who decides",
		Long: `Web serves one page that shows every lane and run in the box of the permission it
is at (resource, quota, ownership, acceptance, release), what crossed from one to
the next and on what evidence, pools, the line and durations, as they change. A
person can accept, reject, cancel, hold and resume from it, by the rules of those
verbs; a release is typed in a terminal.

It listens on a loopback address only, and prints one link, which works once: the
browser that opens it has the page until web ends, with Ctrl-C. Looking needs no
dispatcher. Inside an agent everything can be looked at and nothing decided.`,
		Example: `  handsel web
  handsel web --listen 127.0.0.1:8484 --open`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return a.web(listen, show, asJSON) },
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&listen, "listen", "127.0.0.1:0", "a loopback `ADDRESS`; port 0 is any that is free")
	fs.BoolVar(&show, "open", false, "open the page in this user's browser")
	fs.BoolVar(&asJSON, "json", false, "one JSON object: where it is")
	return cmd
}

func (a *app) web(listen string, show, asJSON bool) error {
	h, err := a.open()
	if err != nil {
		return err
	}
	if err := handsel.CloseInherited(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	s, err := web.Open(web.Options{Listen: listen, Home: h, Look: h.Watch(), Journal: journalOf(h)})
	if err != nil {
		return err
	}
	if err := a.showLink(s, asJSON); err != nil {
		return errors.Join(err, s.Close())
	}
	if show {
		away, err := showPage(s.Link())
		if err != nil {
			a.say("warning: no browser could be opened: %s", oneLine(err.Error()))
		}
		defer away()
	}
	err = s.Serve(ctx)
	a.say("web at %s has ended", s.Addr())
	return err
}

func (a *app) showLink(s *web.Server, asJSON bool) error {
	if asJSON {
		return a.printJSON(webJSON{V: 1, URL: s.Link(), Addr: s.Addr(), Pid: os.Getpid()})
	}
	if _, err := fmt.Fprintln(a.Out, s.Link()); err != nil {
		return fmt.Errorf("stdout: %w", err)
	}
	a.say("the link works once; Ctrl-C ends the page")
	return nil
}

// journalOf reads the journal for a window, which may not link the database.
func journalOf(h *handsel.Home) func(context.Context, string, func(error)) (iter.Seq[handsel.JournalEvent], error) {
	return func(ctx context.Context, x string, problem func(error)) (iter.Seq[handsel.JournalEvent], error) {
		var filter handsel.JournalFilter
		if x != "" {
			s, err := host.JournalSubject(ctx, h, x)
			if err != nil {
				return nil, err
			}
			filter = s.Filter
		}
		return host.Journal(h, filter, problem), nil
	}
}

// showPage opens the link in a browser. The browser is given a file that leads
// there: every user of the machine can read a command line, and the link is a key.
func showPage(link string) (away func(), err error) {
	f, err := os.CreateTemp("", "handsel-web-*.html") // for us alone to read
	if err != nil {
		return func() {}, err
	}
	away = func() { _ = os.Remove(f.Name()) }
	_, err = fmt.Fprintf(f, "<!doctype html><meta charset=utf-8><meta name=referrer content=no-referrer><title>handsel</title><meta http-equiv=refresh content=\"0;url=%s\">\n", html.EscapeString(link))
	if err := errors.Join(err, f.Close()); err != nil {
		return away, err
	}
	opener := map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}[runtime.GOOS]
	if opener == nil {
		opener = []string{"xdg-open"}
	}
	cmd := exec.Command(opener[0], append(opener[1:], f.Name())...)
	cmd.SysProcAttr = apart() // a browser that begins here does not end with our Ctrl-C
	if err := cmd.Start(); err != nil {
		return away, err
	}
	go func() { _ = cmd.Wait() }() // it may stay as long as the browser does
	return away, nil
}
