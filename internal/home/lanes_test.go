package home

import (
	"errors"
	"strings"
	"testing"
)

// C11: how a lane's name is spelled as a file's.
func TestLaneFileSpellsEveryByte(t *testing.T) {
	for name, want := range map[string]string{
		"api-review_2":           "api-review_2",
		"a.b":                    "a.b",
		".a":                     "=2ea",
		"..":                     "=2e.",
		"API":                    "=41=50=49",
		"a/b":                    "a=2fb",
		"a=2fb":                  "a=3d2fb",
		"ä":                      "=c3=a4",
		"two words\n":            "two=20words=0a",
		strings.Repeat("a", 200): strings.Repeat("a", 200),
	} {
		if got := LaneFile(name); got != want {
			t.Errorf("LaneFile(%q) = %q, want %q", name, got, want)
		}
		if back, ok := LaneOfFile(LaneFile(name)); !ok || back != name {
			t.Errorf("LaneOfFile(%q) = %q, %v, want %q", LaneFile(name), back, ok, name)
		}
	}
}

// C11: a long one is cut, and told from its neighbours by its digest.
func TestLongLaneFilesStayDistinct(t *testing.T) {
	one, other := strings.Repeat("Ä", 80)+"1", strings.Repeat("Ä", 80)+"2"
	a, b := LaneFile(one), LaneFile(other)
	if len(a) != 194 || a[:160] != b[:160] || a == b || a[160:162] != "==" {
		t.Errorf("LaneFile = %q and %q, want 160 characters they share, == and two digests", a, b)
	}
	if name, ok := LaneOfFile(a); ok {
		t.Errorf("LaneOfFile of a shortened name = %q, want none", name)
	}
}

// C11: no Unicode normalization.
func TestTwoSpellingsAreTwoLanes(t *testing.T) {
	if composed, decomposed := LaneFile("\u00e9"), LaneFile("e\u0301"); composed == decomposed {
		t.Errorf("both spellings of é are %q", composed)
	}
}

// L1: 1 to 200 bytes of UTF-8.
func TestLaneNamesAreChecked(t *testing.T) {
	for _, good := range []string{"a", " ", "..", "a/b", "ä☃", strings.Repeat("a", 200), "\x01"} {
		if err := ValidLane(good); err != nil {
			t.Errorf("ValidLane(%q) = %v", good, err)
		}
	}
	for _, name := range []string{"", strings.Repeat("a", 201), strings.Repeat("ä", 101), "\xff", "a\x00b"} {
		var bad *BadLane
		if err := ValidLane(name); !errors.As(err, &bad) {
			t.Errorf("ValidLane(%q) = %v, want *BadLane", name, err)
		}
	}
}

func FuzzLaneFile(f *testing.F) {
	for _, seed := range []string{"a", ".", "=", "==", "a=2", "Ä", strings.Repeat("=", 100)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if ValidLane(text) == nil {
			file := LaneFile(text)
			if strings.ContainsAny(file, "/\x00") || strings.HasPrefix(file, ".") || len(file) > 200 || file == "" {
				t.Errorf("LaneFile(%q) = %q is no name of a file", text, file)
			}
		}
		if name, ok := LaneOfFile(text); ok && LaneFile(name) != text {
			t.Errorf("LaneOfFile(%q) = %q, which is spelled %q", text, name, LaneFile(name))
		}
	})
}
