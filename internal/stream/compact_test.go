package stream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// compact gives a compactor the whole object in parts of step bytes; 0: at once.
func compact(input []byte, most, step int) (c *compactor, n int, done, fits bool) {
	c = newCompactor(most)
	if step == 0 {
		step = len(input)
	}
	for fits = true; n < len(input) && !done && fits; {
		var took int
		took, done, fits = c.feed(input[n:min(n+step, len(input))])
		n += took
	}
	return c, n, done, fits
}

// TestShortenedObjectsKeepTheirStructure: E9. What is left of an object has all of
// its keys, numbers and words, and of every string the beginning, whole characters
// only.
func TestShortenedObjectsKeepTheirStructure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := 8000
		var value func(depth int) any
		value = func(depth int) any {
			sort := rapid.IntRange(0, 6).Draw(t, "sort")
			if budget -= 30; depth > 4 || budget < 0 {
				sort = 6
			}
			switch sort {
			case 0, 1:
				o := map[string]any{}
				for range rapid.IntRange(0, 4).Draw(t, "keys") {
					o[rapid.StringMatching(`[a-z"\\é]{1,8}`).Draw(t, "key")] = value(depth + 1)
				}
				return o
			case 2:
				l := []any{}
				for range rapid.IntRange(0, 4).Draw(t, "items") {
					l = append(l, value(depth+1))
				}
				return l
			case 3:
				return nil
			case 4, 5:
				return strings.Repeat(rapid.SampledFrom([]string{"x", "é", "中", "🎉", "\\", "\"", "\x01", "x🎉", "\n{[]}"}).Draw(t, "letter"), rapid.IntRange(0, 3000).Draw(t, "length"))
			}
			return rapid.Float64().Draw(t, "number")
		}
		whole := map[string]any{"a": value(0), "b": value(0), "type": "result"}
		input, err := json.MarshalIndent(whole, "", rapid.SampledFrom([]string{"", "  "}).Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		if rapid.Bool().Draw(t, "escaped") {
			input = ascii(input)
		}
		const most = 16 << 10
		c, n, done, fits := compact(input, most, rapid.IntRange(0, 3000).Draw(t, "step"))
		if !done || !fits || n != len(input) || len(c.out) > most {
			t.Fatalf("done %v, fits %v, %d of %d bytes, %d left", done, fits, n, len(input), len(c.out))
		}
		var less map[string]any
		if err := json.Unmarshal(c.out, &less); err != nil {
			t.Fatalf("%.300q: %v", c.out, err)
		}
		if where := shorter(whole, less); where != "" {
			t.Errorf("%s: %.300q became %.300q", where, input, c.out)
		}
		if cut := len(input) - len(c.out); c.cut > int64(cut) || c.cut == 0 && len(input) > most && !bytes.Contains(input, []byte("\n")) {
			t.Errorf("%d bytes are gone, %d are said to be", cut, c.cut)
		}
	})
}

// ascii escapes what is not ASCII, in pairs where it must.
func ascii(b []byte) []byte {
	var out []byte
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		b = b[n:]
		switch {
		case r < 0x80:
			out = append(out, byte(r))
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = fmt.Appendf(out, `\u%04X\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		}
	}
	return out
}

// shorter says where b is more than a with its strings cut; "": nowhere.
func shorter(a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		o, ok := b.(map[string]any)
		if !ok || len(o) != len(a) {
			return "an object"
		}
		for k := range a {
			if where := shorter(a[k], o[k]); where != "" {
				return k + ": " + where
			}
		}
	case []any:
		l, ok := b.([]any)
		if !ok || len(l) != len(a) {
			return "a list"
		}
		for i := range a {
			if where := shorter(a[i], l[i]); where != "" {
				return where
			}
		}
	case string:
		if s, ok := b.(string); !ok || !strings.HasPrefix(a, s) || len(s) < min(len(a), leastHead/12) {
			return "a string"
		}
	default:
		if a != b {
			return fmt.Sprint(a)
		}
	}
	return ""
}

// TestCompactorIsBounded: what it keeps of any object is bounded while it reads,
// and one that has more structure than there is room for is given up.
func TestCompactorIsBounded(t *testing.T) {
	const most = 4096
	for _, tt := range []struct {
		name, input string
		fits        bool
	}{
		{"one string", `{"a":"` + strings.Repeat("x", 100000) + `"}`, true},
		{"strings", `{"a":[` + strings.Repeat(`"`+strings.Repeat("x", 3000)+`",`, 40) + `1]}`, true},
		{"many strings", `{"a":[` + strings.Repeat(`"`+strings.Repeat("x", 3000)+`",`, 4000) + `1]}`, false},
		{"a key", `{"` + strings.Repeat("x", 100000) + `":1}`, true},
		{"numbers", `{"a":[` + strings.Repeat("1,", 100000) + `1]}`, false},
		{"a number", `{"a":` + strings.Repeat("1", 100000) + `}`, false},
		{"blanks", `{"a":` + strings.Repeat(" \n", 100000) + `1}`, true},
		{"depth", strings.Repeat(`{"a":`, 100000), false},
		{"continuation bytes", `{"a":"` + strings.Repeat("\x80", 100000) + `"}`, true},
		{"halves of pairs", `{"a":"` + strings.Repeat(`\ud83d`, 100000) + `"}`, true},
	} {
		c := newCompactor(most)
		done, fits := false, true
		for rest := []byte(tt.input); len(rest) > 0 && fits; {
			var n int
			n, done, fits = c.feed(rest[:min(len(rest), 999)])
			rest = rest[n:]
			if len(c.out) > most*3/2 {
				t.Fatalf("%s: %d bytes are kept", tt.name, len(c.out))
			}
		}
		if fits != tt.fits || fits != done || fits && !json.Valid(c.out) {
			t.Errorf("%s: fits %v, done %v, %d bytes: %.80q", tt.name, fits, done, len(c.out), c.out)
		}
	}
}

// FuzzCompactor looks for an object that it spoils, and for output that depends on
// how the object arrives or is more than it may be.
func FuzzCompactor(f *testing.F) {
	f.Add([]byte(`{"a":"`+strings.Repeat(`\ud83d\ude00`, 40)+`","b":[1,{"c":"`+strings.Repeat("é", 300)+`"}]}`), uint8(3))
	f.Add([]byte(`{"a":"`+strings.Repeat("\xff\x80", 400)+`"}`), uint8(1))
	f.Fuzz(func(t *testing.T, input []byte, step uint8) {
		if len(input) == 0 || input[0] != '{' {
			return
		}
		const most = 256
		at, n, done, fits := compact(input, most, 0)
		c, m, done2, fits2 := compact(input, most, int(step)+1)
		if n != m || done != done2 || fits != fits2 || at.cut != c.cut || !bytes.Equal(at.out, c.out) {
			t.Fatalf("at once %d %v %v %q, in steps of %d %d %v %v %q", n, done, fits, at.out, int(step)+1, m, done2, fits2, c.out)
		}
		if len(c.out) > most*3/2+1 {
			t.Errorf("%d bytes are kept", len(c.out))
		}
		size, _, state := object(input)
		if state != whole {
			return
		}
		if !fits {
			return
		}
		if !done || n != size || !json.Valid(c.out) || utf8.Valid(input[:size]) && !utf8.Valid(c.out) {
			t.Errorf("%q became %q after %d of %d bytes", input[:size], c.out, n, size)
		}
	})
}
