package handsel

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/handsel/handsel/internal/journal"
)

// Verdicts, releases and accounts are told by whoever writes them down (P13), and
// nothing else that is written there is a change of state.
func TestTransfersThatAreChangesAreTold(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "conf.toml")
	if err := os.WriteFile(conf, []byte("[[notify]]\non = [\"accepted\", \"rejected\", \"released\", \"parked\", \"resumed\"]\ncommand = [\"true\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"HANDSEL_HOME": filepath.Join(dir, "home"), "HANDSEL_CONFIG": conf}
	h, err := OpenWith(func(name string) string { return vars[name] })
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	h.TellAside(func(text []byte) error {
		var c Change
		if err := json.Unmarshal(text, &c); err != nil {
			return err
		}
		told = append(told, c.Kinds[0]+" "+c.Lane+c.Account+" "+c.State+" by "+c.By)
		return nil
	})
	if err := h.transferred(
		journal.Event{Permission: journal.Acceptance, What: journal.Accepted, Lane: "a", To: "accepted", By: "kim"},
		journal.Event{Permission: journal.Acceptance, What: "checked", Lane: "a"},
		journal.Event{Permission: journal.Acceptance, What: journal.Rejected, Lane: "b", By: "kim"},
		journal.Event{Permission: journal.Release, What: "not released", Lane: "a"},
		journal.Event{Permission: journal.Release, What: journal.Released, Lane: "a", To: "released", By: "kim"},
		journal.Event{Permission: journal.Quota, What: "parked", Engine: "claude", Account: "work", Code: "limit", By: "run x"},
		journal.Event{Permission: journal.Quota, What: "cleared", Engine: "claude", Account: "work", By: "kim"},
		journal.Event{Permission: journal.Ownership, What: journal.Ended, Lane: "a"},
		journal.Event{Permission: journal.Resource, What: journal.Admitted, Lane: "a"},
	); err != nil {
		t.Fatal(err)
	}
	want := []string{"accepted a accepted by kim", "rejected b rejected by kim", "released a released by kim", "parked work parked by run x", "resumed work cleared by kim"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q\nwant %q", told, want)
	}
}
