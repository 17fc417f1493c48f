package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree writes files and returns the directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const source = `package room

// Larger is S5.
func Larger(a, b int) int {
	if a > b {
		return a
	}
	return b
}

func (x *T[K]) In(a int) bool {
	switch {
	case a < 0:
		return false
	}
	for a > 9 && a != 12 {
		a--
	}
	return a == 3 || a == 4
}

func again(a int) {
	if a > 1 {
	}
	if a > 1 {
	}
}
`

const hand = `clauses S5
fault S5.smaller
why the smaller one is returned
file room/room.go
-	if a > b {
+	if a < b {
 		return a
test room -run Larger -short
`

func TestHandWrittenFaultsApplyOnce(t *testing.T) {
	for what, c := range map[string]struct{ list, want string }{
		"as it is":         {hand, ""},
		"gone":             {strings.Replace(hand, "-	if a > b", "-	if a > c", 1), "S5.smaller no longer applies: room/room.go has its lines 0 times"},
		"in two places":    {strings.NewReplacer("-	if a > b", "-	if a > 1", " 		return a\n", "").Replace(hand), "2 times, want once"},
		"no such file":     {strings.Replace(hand, "room/room.go", "room/other.go", 1), "no longer applies: open"},
		"clause uncovered": {"clauses S6\n" + hand, "clause S6 has no fault"},
	} {
		root := tree(t, map[string]string{"room/room.go": source, "faults.txt": c.list})
		l, err := readFaults(root + "/faults.txt")
		if err != nil {
			t.Fatal(err)
		}
		bad := l.apply(root)
		if c.want == "" {
			f := l.faults[0]
			got := string(f.content["room/room.go"])
			if len(bad) > 0 || got != strings.Replace(source, "a > b", "a < b", 1) || f.place != "room/room.go:5" || f.clauses[0] != "S5" {
				t.Errorf("%s: %v, at %s:\n%s", what, bad, f.place, got)
			}
			continue
		}
		if len(bad) != 1 || !strings.Contains(bad[0].Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, bad, c.want)
		}
	}
}

func TestUnusableListsAreRefused(t *testing.T) {
	for what, text := range map[string]string{
		"no reason":   strings.Replace(hand, "why the smaller one is returned\n", "", 1),
		"no test":     strings.Replace(hand, "test room -run Larger -short\n", "", 1),
		"no change":   "fault S5.x\nwhy x\ntest room\n",
		"no file":     "fault S5.x\nwhy x\n-a\n+b\ntest room\n",
		"bad name":    "fault five\n",
		"bad flag":    hand + "test room -race\n",
		"no package":  hand + "test -short\n",
		"unknown key": hand + "because x\n",
		"twice":       hand + hand,
	} {
		root := tree(t, map[string]string{"faults.txt": text})
		if _, err := readFaults(root + "/faults.txt"); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

func TestEveryConditionIsFound(t *testing.T) {
	root := tree(t, map[string]string{"room/room.go": source, "room/room_windows.go": "package room\n\nfunc w(a int) {\n\tif a > 1 {\n\t}\n}\n",
		"room/room_test.go": "package room\n\nfunc x(a int) {\n\tif a > 1 {\n\t}\n}\n"})
	faults, bad := automatic(root, []room{{dir: "room"}}, map[string]string{
		"room/room.go again negate#2: a > 1":   "nothing happens there",
		"room/room.go Larger negate: a > gone": "it is gone",
	})
	if len(bad) != 1 || !strings.Contains(bad[0].Error(), "a > gone") {
		t.Errorf("stale explanations: %v", bad)
	}
	var got []string
	for _, f := range faults {
		got = append(got, strings.TrimPrefix(f.id, "room/room.go "))
	}
	want := []string{
		"Larger negate: a > b", "Larger bound: a > b",
		"(*T).In negate: a < 0", "(*T).In bound: a < 0",
		"(*T).In negate: a > 9 && a != 12", "(*T).In part: a > 9", "(*T).In part: a != 12", "(*T).In bound: a > 9",
		"(*T).In negate: a == 3 || a == 4", "(*T).In part: a == 3", "(*T).In part: a == 4",
		"again negate: a > 1", "again bound: a > 1", "again negate#2: a > 1", "again bound#2: a > 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, f := range faults {
		text := string(f.content["room/room.go"])
		switch f.id {
		case "room/room.go (*T).In part: a != 12":
			if !strings.Contains(text, "for a > 9 && !(a != 12) {") || kindOf(f) != part {
				t.Errorf("%s (%s):\n%s", f.id, kindOf(f), text)
			}
		case "room/room.go again bound#2: a > 1":
			if !strings.Contains(text, "if a > 1 {\n\t}\n\tif a >= 1 {") || kindOf(f) != bound {
				t.Errorf("%s (%s):\n%s", f.id, kindOf(f), text)
			}
		case "room/room.go again negate#2: a > 1":
			if f.explained == "" {
				t.Error("the explanation was not put where it belongs")
			}
		case "room/room.go Larger negate: a > b":
			if !slices.Equal(f.clauses, []string{"S5"}) {
				t.Errorf("clauses %q", f.clauses)
			}
		}
	}
}

func TestExplanationsShareAReason(t *testing.T) {
	root := tree(t, map[string]string{"explained.txt": "# why\na b negate: c\na b bound: c\n\tno difference,\n\tsince it is so\n\nd e negate: f\n  another\n"})
	got, err := readExplained(root + "/explained.txt")
	if err != nil || len(got) != 3 || got["a b bound: c"] != "no difference, since it is so" || got["d e negate: f"] != "another" || got["a b negate: c"] != got["a b bound: c"] {
		t.Errorf("%q, %v", got, err)
	}
	for what, text := range map[string]string{"no reason": "a b negate: c\n", "a reason first": "\tx\n", "twice": "a\n\tx\na\n\ty\n"} {
		root := tree(t, map[string]string{"explained.txt": text})
		if _, err := readExplained(root + "/explained.txt"); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}
