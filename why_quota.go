package handsel

import (
	"github.com/handsel/handsel/internal/hold"
	"github.com/handsel/handsel/internal/quota"
)

// quota asks what is known of the engine account that a start would use; engine is
// ENGINE or ENGINE/NAME. run is whose start it is: the one that was let through to
// see whether a login works is not held by that.
func (y *inquiry) quota(engine, run string) {
	who := quota.Parse(engine)
	if who.Engine == "" {
		return
	}
	s, _ := y.h.lenient() // mistakes are among the problems already
	if quota.StateOf(y.orders, who).Pause.Quota.Probe == run && run != "" {
		y.orders.All = withoutPause(y.orders.All, who)
	}
	q := y.h.quotaOf(s, y.orders, who)
	y.ask(Permission{Class: classQuota, Answer: q.Answer, Code: q.Code, Message: q.Message, Since: q.Since, Until: q.Until, Ends: q.Ends})
}

func withoutPause(all []Order, who quota.Account) (kept []Order) {
	for _, o := range all {
		if o.Kind != hold.Pause || o.Scope != who.Scope() {
			kept = append(kept, o)
		}
	}
	return kept
}

// account is ENGINE, or ENGINE/NAME where a named account is used.
func account(engine, name string) string { return quota.Account{Engine: engine, Name: name}.String() }

func accountOf(k *KnownRun) string { return account(k.Engine, k.Account) }
