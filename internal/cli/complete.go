package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/handsel/handsel"
)

// kind is what an argument may name; several are or-ed.
type kind int

const (
	lanes    kind = 1 << iota // that somebody has, or that wait
	runs                      // that have not ended
	over                      // lanes and runs that have ended as well
	engines                   // after engine:
	accounts                  // after account:
	pools                     // after pool:
	bare                      // pools without pool:, several with a comma between them
	held                      // what an order holds back
)

// complete offers names that are there now, for at most so many arguments. It
// looks at the disk only, so that a dispatcher that does not answer delays no key.
// A name that a terminal could not show is not offered.
func (a *app) complete(atMost int, kinds kind) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		const done = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
		if len(args) >= atMost {
			return nil, done
		}
		h, err := a.open()
		if err != nil {
			return nil, done
		}
		o := &offers{begun: begun, args: args}
		o.groups(h, kinds)
		if kinds&held != 0 {
			o.held(h)
		}
		if kinds&(lanes|runs) != 0 {
			o.work(h, kinds)
		}
		return o.all, done
	}
}

// offers are what fits the beginning of a word.
type offers struct {
	begun string
	args  []string
	all   []string
}

func (o *offers) add(name, about string) {
	if name == "" || clean(name) != name || !strings.HasPrefix(name, o.begun) || slices.Contains(o.args, name) {
		return
	}
	line := name + "\t" + clean(strings.Join(strings.Fields(about), " "))
	if !slices.ContainsFunc(o.all, func(have string) bool { return strings.HasPrefix(have, name+"\t") }) {
		o.all = append(o.all, line)
	}
}

// groups are engines, accounts and pools. Where lanes and runs are meant as well,
// they are offered only to who begins with their kind.
func (o *offers) groups(h *handsel.Home, kinds kind) {
	named := h.GroupNames()
	if kinds&engines != 0 && o.asks("engine:", kinds) {
		for _, name := range named.Engines {
			o.add("engine:"+name, "engine")
		}
	}
	if kinds&accounts != 0 && o.asks("account:", kinds) {
		known, _, _ := h.Quota("") // what cannot be read has no name here
		for _, k := range known {
			if k.Account != "" {
				o.add("account:"+k.Engine+"/"+k.Account, "account of "+k.Engine)
			}
		}
	}
	if kinds&pools != 0 && o.asks("pool:", kinds) {
		for _, name := range named.Pools {
			o.add("pool:"+name, "pool")
		}
	}
	if kinds&bare != 0 {
		first := o.begun[:strings.LastIndex(o.begun, ",")+1]
		for _, name := range named.Pools {
			if !slices.Contains(strings.Split(first, ","), name) {
				o.add(first+name, "pool")
			}
		}
	}
}

// asks tells whether the word may become one of that kind, and was begun where
// there is much else.
func (o *offers) asks(prefix string, kinds kind) bool {
	if kinds&runs != 0 && o.begun == "" {
		return false
	}
	return strings.HasPrefix(o.begun, prefix) || strings.HasPrefix(prefix, o.begun)
}

func (o *offers) held(h *handsel.Home) {
	orders, _, _ := h.Orders() // what cannot be read has no name here
	for _, order := range orders {
		o.add(order.Scope, string(order.Kind)+" "+order.Reason)
	}
}

// work are lanes by their names, and runs by the ends of their ids.
func (o *offers) work(h *handsel.Home, kinds kind) {
	prefix := ""
	if strings.HasPrefix(o.begun, "lane:") {
		prefix = "lane:"
	}
	if kinds&lanes != 0 {
		for _, l := range h.Status(context.Background()).Lanes {
			what := l.State
			if l.Waits() {
				what = "waits"
			}
			o.add(prefix+l.Name, "lane "+what+" "+l.Argv0)
		}
	}
	list, err := h.Runs(handsel.RunFilter{Limit: 200})
	if err != nil {
		return
	}
	for i := range list.Runs {
		r := &list.Runs[i]
		if r.Ended() && kinds&over == 0 {
			continue
		}
		about := r.Word() + " " + cmp.Or(r.Engine, "") + " " + r.Argv0
		if kinds&lanes != 0 && r.Lane != "" {
			o.add(prefix+r.Lane, "lane "+about)
		}
		if kinds&runs != 0 {
			o.run(r, about)
		}
	}
}

// run offers the end of an id, or all of one that was begun from the front.
func (o *offers) run(r *handsel.KnownRun, about string) {
	begun, prefixed := strings.CutPrefix(o.begun, "run:")
	id := short(r.ID)
	if strings.HasPrefix(r.ID, begun) && len(begun) > len(id) {
		id = r.ID
	}
	if prefixed {
		id = "run:" + id
	}
	o.add(id, about)
}
