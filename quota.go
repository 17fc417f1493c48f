package handsel

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/handsel/handsel/internal/config"
	"github.com/handsel/handsel/internal/engine"
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/journal"
	"github.com/handsel/handsel/internal/machine"
	"github.com/handsel/handsel/internal/profile"
	"github.com/handsel/handsel/internal/quota"
	"github.com/handsel/handsel/internal/record"
	"github.com/handsel/handsel/internal/stream"
)

func (h *Home) book() quota.Book { return quota.Book{Home: h.dir} }

// rulesOf is what the configuration says of an engine's quota.
func rulesOf(s *config.Settings, engine string) quota.Rules {
	q := s.QuotaOf[engine]
	return quota.Rules{AutoResume: !q.NoResume, MaxPark: cmp.Or(q.MaxPark, quota.DefaultMaxPark)}
}

// account finds the account that was asked for, and what makes the engine use it
// (P5): variables of the user's own. The login itself stays where it is.
func (j *job) account() error {
	name := j.o.Account
	if name == "" {
		return nil
	}
	if j.gate || j.engine == "" {
		return &BadOption{"account", name, "it is of an engine, and none is known here: say which with --engine"}
	}
	all := j.settings.AccountsOf[j.engine]
	a, ok := all[name]
	if !ok {
		why := fmt.Sprintf("engine %s has no account of that name; [accounts.%s.NAME] makes one", j.engine, j.engine)
		if len(all) > 0 {
			why = fmt.Sprintf("engine %s has the accounts %s", j.engine, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
		}
		return &BadOption{"account", name, why}
	}
	j.accountEnv = nil
	for _, variable := range slices.Sorted(maps.Keys(a.Env)) {
		j.accountEnv = append(j.accountEnv, variable+"="+a.Env[variable])
	}
	return nil
}

// adoptAccount takes the profile's account where nobody named another. It is one of
// the profile's engine: where the agent is another's, it means nothing.
func (j *job) adoptAccount(p *profile.Profile) {
	if p == nil || p.Account == "" || j.o.Account != "" {
		return
	}
	if p.Engine != "" {
		if of, err := j.settings.engineOf(p.Engine, nil); err != nil || of != j.engine {
			return
		}
	}
	j.o.Account = p.Account
}

func (j *job) who() quota.Account { return quota.Account{Engine: j.engine, Name: j.o.Account} }

// space waits until the process may be started beside those of its engine.
func (j *job) space(ctx context.Context) error {
	if !j.gate && j.engine != "" {
		orders, err := hold.List(j.home.dir.Holds())
		if err != nil {
			return err
		}
		now := quota.Now()
		err = j.home.book().Start(ctx, j.who(), spacesOf(j.settings, j.who(), quota.StateOf(orders, j.who()), now))
		return orRefused(err, j.engine, j.o.Workload)
	}
	return nil
}

// whatOf is what a fault says of an account; 0: nothing.
func whatOf(f stream.Fault) quota.What {
	switch f {
	case stream.ByLimit:
		return quota.Limit
	case stream.ByThrottle:
		return quota.Throttle
	case stream.ByLogin:
		return quota.Login
	}
	return 0
}

// watcher tells the account what a run sees of it, each thing once.
type watcher struct {
	j    *job
	told map[quota.What]time.Time // with the reset that was named
	err  error                    // why the last could not be kept
}

// event takes in what the engine says while it works: a limit or a failing login
// counts before the run has ended.
func (w *watcher) event(e Event) {
	switch what := whatOf(e.Fault); {
	case e.Kind == stream.Limit, e.Kind == stream.Trouble, e.Kind == stream.Result && e.Failed:
		w.tell(what, e.Until, e.Text)
	case e.Kind == stream.Text || e.Kind == stream.Tool:
		w.tell(quota.Answered, time.Time{}, "")
	}
}

// ended takes in how the run went.
func (w *watcher) ended(end stream.Ending) {
	if end.Succeeded {
		w.tell(quota.Succeeded, time.Time{}, "")
		return
	}
	w.tell(whatOf(end.Kind), end.Until, end.Message)
}

// mostSaid is how much of a provider's own words is kept, in bytes.
const mostSaid = 200

func (w *watcher) tell(what quota.What, reset time.Time, text string) {
	j := w.j
	before, known := w.told[what]
	if what == 0 || j.engine == "" || j.gate || known && !reset.After(before) {
		return
	}
	if w.told == nil {
		w.told = map[quota.What]time.Time{}
	}
	w.told[what] = reset
	seen := quota.Seen{What: what, Reset: reset, Text: plain(text, mostSaid), Run: j.id, Started: j.about}
	at := machine.Now()
	done, err := j.home.book().Observe(j.who(), seen, rulesOf(j.settings.Settings, j.engine))
	if err != nil {
		w.err = fmt.Errorf("what was seen of the quota of %s is not kept: %w", j.who(), err)
		return
	}
	j.home.journalQuota(at, done, j.id, j.laneName())
}

// plain is text fit for one line of a file that people read (C135).
func plain(text string, most int) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f }), " ")
	return shown(text, most)
}

// journalQuota writes down what became of accounts, as of the time before that was
// on disk: what followed from it does not stand before it. It is a record: that it
// cannot be written stops nothing.
func (h *Home) journalQuota(at time.Time, all []quota.Transfer, run, lane string) {
	for _, t := range all {
		e := journal.Event{
			At: at, Permission: journal.Quota, What: t.What, Engine: t.Account.Engine, Account: t.Account.Name, Attempt: run, Lane: lane,
			Code: t.Order.Code, By: t.Order.By, Text: quota.Text(t.Order), Until: t.Order.Until,
		}
		if t.What == "cleared" {
			e.By, e.Text, e.Until = orderedBy(), t.Account.String()+" may start again", time.Time{}
			if run != "" {
				e.By = "run " + run
			}
		}
		if t.Order.Quota.Run != "" {
			e.Evidence = []string{"run:" + t.Order.Quota.Run}
		}
		_ = h.transferred(e) // the order itself is on disk
	}
}

// QuotaAccount is what is known of one engine account.
type QuotaAccount struct {
	Engine  string `json:"engine"`
	Account string `json:"account,omitempty"` // empty: the engine's default
	Answer  string `json:"answer"`            // go, wait or deny
	Code    string `json:"code"`              // free, or why it waits
	// Message is what is found, in words, and Ends what would end it.
	Message string        `json:"message"`
	Ends    string        `json:"ends,omitempty"`
	Since   record.Time   `json:"since,omitzero"`
	Until   record.Time   `json:"until,omitzero"`
	Reset   record.Time   `json:"reset,omitzero"`      // as the provider named it
	Count   int           `json:"count,omitempty"`     // failures of that kind in a row
	By      string        `json:"by,omitempty"`        // who says so
	GapS    float64       `json:"min_gap_s,omitempty"` // between two starts
	Asked   *QuotaCommand `json:"command,omitempty"`   // what [quota.X] command said last
}

// QuotaCommand is the last answer of a command that is asked.
type QuotaCommand struct {
	Answer  string      `json:"answer"` // go, wait, deny, or none
	At      record.Time `json:"at,omitzero"`
	Until   record.Time `json:"until,omitzero"`
	Message string      `json:"message,omitempty"`
}

// Quota lists what is known of the engine accounts that are configured, that
// something is known of, or of x alone. It changes nothing and asks nobody.
func (h *Home) Quota(x string) ([]QuotaAccount, []string, error) {
	in, problems := h.lenient()
	orders, err := hold.List(h.dir.Holds())
	if err != nil {
		return nil, nil, err
	}
	said := []string{}
	for _, p := range problems {
		said = append(said, p.Error())
	}
	for _, p := range orders.Problems {
		said = append(said, p.Error())
	}
	var all []quota.Account
	if x != "" {
		a, err := h.quotaAccount(in, orders, x)
		if err != nil {
			return nil, nil, err
		}
		all = []quota.Account{a}
	} else {
		all = knownAccounts(in, orders)
	}
	list := []QuotaAccount{}
	for _, a := range all {
		list = append(list, h.quotaOf(in, orders, a))
	}
	return list, said, nil
}

// knownAccounts are those that there is something to say of, in order.
func knownAccounts(in *inForce, orders hold.Orders) (all []quota.Account) {
	for name := range in.QuotaOf {
		all = append(all, quota.Account{Engine: name})
	}
	for name, e := range in.EngineOf {
		if e.MinGap > 0 {
			all = append(all, quota.Account{Engine: name})
		}
	}
	for name, named := range in.AccountsOf {
		all = append(all, quota.Account{Engine: name})
		for account := range named {
			all = append(all, quota.Account{Engine: name, Name: account})
		}
	}
	for _, o := range slices.Concat(orders.All, orders.Passed) {
		if a, ok := quota.OfScope(o.Scope); ok && o.OfAccount() {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b quota.Account) int {
		return cmp.Or(cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(all)
}

// quotaAccount reads ENGINE or ENGINE/NAME. An account that is not configured any
// more and still has an order is one.
func (h *Home) quotaAccount(in *inForce, orders hold.Orders, x string) (quota.Account, error) {
	x = strings.TrimPrefix(strings.TrimPrefix(x, "engine:"), "account:")
	a := quota.Parse(x)
	name, err := in.engineOf(a.Engine, nil)
	if a.Engine == "" || err != nil {
		return a, &BadOption{"engine", a.Engine, "it is ENGINE or ENGINE/ACCOUNT, and the engine is one of " + strings.Join(in.engines(), ", ")}
	}
	a.Engine = name
	if _, ok := in.AccountsOf[a.Engine][a.Name]; !ok && strings.Contains(x, "/") && len(orders.Account(a.Scope())) == 0 {
		return a, &BadOption{"account", x, fmt.Sprintf("engine %s has no account of that name; [accounts.%s.NAME] makes one", a.Engine, a.Engine)}
	}
	return a, nil
}

// quotaOf is what is known of one account.
func (h *Home) quotaOf(in *inForce, orders hold.Orders, who quota.Account) QuotaAccount {
	now := quota.Now()
	s := quota.StateOf(orders, who)
	out := QuotaAccount{Engine: who.Engine, Account: who.Name, Answer: AnswerGo, Code: CodeFree, Message: "nothing is known that holds it back"}
	out.Asked = h.commandSaid(in, who, now)
	spaces := spacesOf(in, who, s, now)
	for _, sp := range spaces {
		out.GapS = max(out.GapS, sp.Gap.Seconds())
	}
	tell := func(o hold.Order, code string, left time.Duration) {
		out.Answer, out.Code, out.Message, out.Ends = AnswerWait, code, quota.Text(o), quota.Ends(o)
		out.Since, out.Until, out.Reset, out.Count, out.By = record.At(o.Since), at(untilOf(o, left)), at(o.Quota.Reset), o.Quota.Count, o.By
	}
	said := s.Answer("", now)
	wait, space, err := h.book().Wait(spaces, now)
	switch {
	case said.Code != "":
		tell(said.Order, said.Code, said.Left)
	case said.Probe:
		tell(said.Order, CodeFree, 0)
		out.Answer, out.Message, out.Until = AnswerGo, quota.Text(said.Order)+": the next start", record.Time{}
	case err != nil:
		out.Answer, out.Code, out.Message = AnswerWait, "untrusted", err.Error()
	case wait > 0 && space.Key != who.Engine:
		tell(s.Pace, CodeThrottle, wait)
	case wait > 0:
		out.Answer, out.Code, out.Message, out.Until, out.Ends = AnswerWait, CodeMinGap, gapText(who.Engine, space.Gap), at(now.Wall.Add(wait)), "that time"
	case out.Asked != nil && out.Asked.Answer == AnswerWait:
		out.Answer, out.Code, out.Until = AnswerWait, CodeCommandWait, out.Asked.Until
		out.Message, out.Ends = commandText(who, "says wait", out.Asked.Message), "another answer of the command"
	case out.Asked != nil && out.Asked.Answer == AnswerDeny:
		out.Answer, out.Code = AnswerDeny, CodeCommandDeny
		out.Message, out.Ends = commandText(who, "says no", out.Asked.Message), "another answer of the command"
	case s.Park.Kind != "": // its time has passed, and it is remembered until something succeeds
		out.Count, out.Reset = s.Park.Quota.Count, at(s.Park.Quota.Reset)
		out.Message = "its last limit is over, and no start has succeeded since"
	}
	return out
}

// QuotaChange is what SetQuota or ClearQuota did to one account.
type QuotaChange struct {
	Account string // ENGINE or ENGINE/NAME
	Order   Order  // that was given or taken back
}

// SetQuota says that an engine account, as ENGINE or ENGINE/NAME, has no capacity
// until then, or until it is cleared. It binds direct runs and rows alike.
func (h *Home) SetQuota(ctx context.Context, x, reason string, until time.Time) (*QuotaChange, string, error) {
	if err := mayDecide("quota set"); err != nil {
		return nil, "", err
	}
	a, err := h.quotaNamed(x)
	if err != nil {
		return nil, "", err
	}
	now := machine.Now()
	t, err := h.book().Set(a, plain(reason, 1<<10), orderedBy(), until)
	if err != nil {
		return nil, "", err
	}
	h.journalQuota(now, []quota.Transfer{t}, "", "")
	return &QuotaChange{a.String(), t.Order}, h.wake(ctx), nil
}

// ClearQuota takes back all that holds an engine account back, and forgets the
// failures that were counted; without x, of every account. Nothing to take back is
// no error.
func (h *Home) ClearQuota(ctx context.Context, x string) (gone []QuotaChange, silent string, err error) {
	if err := mayDecide("quota clear"); err != nil {
		return nil, "", err
	}
	var all []quota.Account
	if x == "" {
		orders, err := hold.List(h.dir.Holds())
		if err != nil {
			return nil, "", err
		}
		all = knownAccounts(&inForce{Settings: &config.Settings{}}, orders)
	} else {
		a, err := h.quotaNamed(x)
		if err != nil {
			return nil, "", err
		}
		all = []quota.Account{a}
	}
	for _, a := range all {
		done, err := h.clearQuota(a)
		gone = append(gone, done...)
		if err != nil {
			return gone, "", err
		}
	}
	if len(gone) > 0 {
		silent = h.wake(ctx)
	}
	return gone, silent, nil
}

func (h *Home) clearQuota(a quota.Account) (gone []QuotaChange, err error) {
	now := machine.Now()
	done, err := h.book().Clear(a)
	for _, t := range done {
		gone = append(gone, QuotaChange{a.String(), t.Order})
	}
	h.journalQuota(now, done, "", "")
	return gone, err
}

func (h *Home) quotaNamed(x string) (quota.Account, error) {
	in, _ := h.lenient()
	orders, err := hold.List(h.dir.Holds())
	if err != nil {
		return quota.Account{}, err
	}
	return h.quotaAccount(in, orders, x)
}

// accountScope reads ENGINE/NAME as what an order can be about.
func (h *Home) accountScope(name string) (string, error) {
	family, account, ok := strings.Cut(name, "/")
	if !ok || !engine.Valid(account) {
		return "", &BadOption{"account", name, "it is ENGINE/NAME"}
	}
	canonical, err := h.EngineName(family)
	return "account:" + canonical + "/" + account, err
}
