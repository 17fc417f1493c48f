package home

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxLane is the longest name of a lane in bytes (L1).
const MaxLane = 200

// BadLane reports a text that cannot name a lane. Nothing was started; the name
// has to be changed (78).
type BadLane struct {
	Name string
	Why  string
}

func (e *BadLane) Error() string {
	return fmt.Sprintf("lane %s: %s", strconv.QuoteToASCII(e.Name), e.Why)
}

// ValidLane tells whether name can be a lane's: 1 to 200 bytes of UTF-8 (L1).
// Names are compared byte by byte, without Unicode normalization: two spellings
// are two lanes (C11). The error is a *BadLane.
func ValidLane(name string) error {
	bad := func(why string) error { return &BadLane{Name: name, Why: why} }
	switch {
	case name == "":
		return bad("the name is empty")
	case len(name) > MaxLane:
		return bad(fmt.Sprintf("the name has %d bytes, and %d is the most", len(name), MaxLane))
	case !utf8.ValidString(name):
		return bad("the name is not UTF-8")
	case strings.IndexByte(name, 0) >= 0:
		return bad("the name contains a zero byte")
	}
	return nil
}

// The lengths of C11, in characters of a file's name.
const (
	longestFile = 200  // beyond this the name is shortened
	keptOfFile  = 160  // of a shortened name
	sumOfFile   = 16   // bytes of the name's SHA-256
	shortMark   = "==" // in no name that was not shortened
)

// LaneFile spells a lane's name as a file's, without a suffix (C11): a–z, 0–9,
// _, - and a dot that does not lead stand for themselves, every other byte is =
// and two hex digits, and one that is longer than 200 characters is shortened,
// with a part of its digest. So the name of the file does not always tell the
// lane; the record in it does.
func LaneFile(name string) string {
	var out strings.Builder
	out.Grow(len(name) + 8)
	for i, c := range []byte(name) {
		if plainInFile(c) && (c != '.' || i > 0) {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "=%02x", c)
		}
	}
	file := out.String()
	if len(file) <= longestFile {
		return file
	}
	sum := sha256.Sum256([]byte(name))
	return file[:keptOfFile] + shortMark + hex.EncodeToString(sum[:sumOfFile])
}

func plainInFile(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '.'
}

// LaneOfFile reads back what LaneFile has spelled; false for a shortened name,
// and for a text that LaneFile does not write.
func LaneOfFile(file string) (name string, ok bool) {
	var out strings.Builder
	for i := 0; i < len(file); i++ {
		if file[i] != '=' {
			out.WriteByte(file[i])
			continue
		}
		if i+3 > len(file) {
			return "", false
		}
		b, err := hex.DecodeString(file[i+1 : i+3])
		if err != nil {
			return "", false
		}
		out.Write(b)
		i += 2
	}
	name = out.String()
	return name, ValidLane(name) == nil && LaneFile(name) == file
}
