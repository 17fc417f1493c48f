package proc

import "strings"

// ShimMark begins the second line of a shim: a file called like an engine that is
// nothing but the way back to handsel. The name it stands for follows.
const ShimMark = "# handsel-shim: "

// ShimIn is ShimOf for the text of a file.
func ShimIn(text string) (name string, ok bool) {
	if !strings.HasPrefix(text, "#!") {
		return "", false
	}
	_, rest, _ := strings.Cut(text, "\n")
	line, _, whole := strings.Cut(rest, "\n")
	name, marked := strings.CutPrefix(line, ShimMark)
	return name, whole && marked && name != "" && !strings.Contains(name, "/")
}
