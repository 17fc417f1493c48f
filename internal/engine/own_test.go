package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestOwnEngineIsAskedByItsWords(t *testing.T) { // E1, C109
	mine := Own{Args: words("run --model {model} --session={resume} --say {system} --in {dir} -- {prompt}")}
	for _, tt := range []struct {
		name  string
		own   Own
		ask   Ask
		argv  []string
		stdin string
		files map[string]string
	}{
		{"all of it", mine, Ask{Prompt: []byte("do it"), Model: "m", Resume: "r", System: "s", Dir: "/w", Args: words("-v")},
			[]string{"mine", "run", "--model", "m", "--session=r", "--say", "s", "--in", "/w", "--", "do it", "-v"}, "", nil},
		{"nothing optional", mine, Ask{Prompt: []byte("do it"), Dir: "/w"}, []string{"mine", "run", "--in", "/w", "--", "do it"}, "", nil},
		{"a word before it that is no flag", Own{Args: words("run {model} {prompt}")}, Ask{Prompt: []byte("x")}, []string{"mine", "run", "x"}, "", nil},
		{"a lone dash before it", Own{Args: words("- {model} {prompt}")}, Ask{Prompt: []byte("x")}, []string{"mine", "-", "x"}, "", nil},
		{"on stdin", Own{Args: words("--json")}, Ask{Prompt: []byte("do it"), System: "Be brief."}, words("mine --json"), "Be brief.\n\ndo it", nil},
		{"on stdin, and nothing else", Own{Stdin: "prompt"}, Ask{Prompt: []byte("do it")}, words("mine"), "do it", nil},
		{"on both", Own{Args: words("-p {prompt}"), Stdin: "prompt"}, Ask{Prompt: []byte("x")}, words("mine -p x"), "x", nil},
		{"in a file", Own{Args: words("@{prompt_file}"), Stdin: "none"}, Ask{Prompt: []byte("do it"), Files: "/files"}, words("mine @/files/prompt"), "", map[string]string{"/files/prompt": "do it"}},
		{"values are not looked through", Own{Args: words("{prompt}")}, Ask{Prompt: []byte("{model} $(x) {prompt}")}, []string{"mine", "{model} $(x) {prompt}"}, "", nil},
		{"other braces", Own{Args: []string{`{"a": {"b": 1}}`, "{prompt}"}}, Ask{Prompt: []byte("x")}, []string{"mine", `{"a": {"b": 1}}`, "x"}, "", nil},
	} {
		c, err := Known{Own: map[string]Own{"mine": tt.own}}.Headless("mine", tt.ask)
		if err != nil || !slices.Equal(c.Argv, tt.argv) || string(c.Stdin) != tt.stdin || len(c.Files) != len(tt.files) {
			t.Errorf("%s: %q <%q %q, %v, want %q <%q", tt.name, c.Argv, c.Stdin, c.Files, err, tt.argv, tt.stdin)
		}
		for path, text := range tt.files {
			if string(c.Files[path]) != text {
				t.Errorf("%s: %s holds %q", tt.name, path, c.Files[path])
			}
		}
	}
}

func TestWhatAnOwnEngineCannotBeAskedIsRefused(t *testing.T) { // nothing is dropped in silence
	for _, tt := range []struct {
		name string
		own  Own
		ask  Ask
		key  string
	}{
		{"no words", Own{}, Ask{}, "args"},
		{"a model", Own{Args: words("{prompt}")}, Ask{Model: "m"}, "args"},
		{"a conversation", Own{Args: words("{prompt}")}, Ask{Resume: "r"}, "args"},
		{"no way in", Own{Args: words("run"), Stdin: "none"}, Ask{}, "stdin"},
		{"no place for a file", Own{Args: words("{prompt_file}")}, Ask{}, "args"},
	} {
		tt.ask.Prompt = []byte("x")
		_, err := Known{Own: map[string]Own{"mine": tt.own}}.Headless("mine", tt.ask)
		if bad, ok := errors.AsType[*BadOwn](err); !ok || bad.Engine != "mine" || bad.Key != tt.key {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	_, err := Known{Own: map[string]Own{"mine": {Args: words("--say={prompt}")}}}.Headless("mine", Ask{Prompt: []byte(strings.Repeat("x", 131066))})
	if long, ok := errors.AsType[*TooLong](err); !ok || long.Size != 131072 || long.Limit != 131071 {
		t.Errorf("a word of 131,072 bytes: %v", err)
	}
	if _, err := (Known{}).Headless("nobody", Ask{Prompt: []byte("x")}); err == nil {
		t.Error("an engine that nobody knows is asked")
	}
}

func TestExecutableIsWhatTheConfigurationSays(t *testing.T) {
	for _, tt := range []struct {
		known Known
		name  string
		want  string
	}{
		{Known{}, "pi", "pi"}, {Known{}, "gemini-cli", "gemini"}, {Known{}, "agy", "agy"}, {Known{}, "antigravity", "agy"},
		{Known{Own: map[string]Own{"pi": {Binary: "/opt/pi"}}}, "pi", "/opt/pi"},
		{Known{Binaries: map[string][]string{"pi": {"corp-pi"}}}, "pi", "pi"},
		{Known{Binaries: map[string][]string{"mine": {"mine-cli"}}, Own: map[string]Own{"mine": {Stdin: "prompt"}}}, "mine", "mine-cli"},
		{Known{Own: map[string]Own{"mine": {Stdin: "prompt"}}}, "mine", "mine"},
	} {
		c, err := tt.known.Headless(tt.name, Ask{Prompt: []byte("x")})
		if err != nil || c.Argv[0] != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.name, c.Argv, err, tt.want)
		}
	}
}

// TestOwnEngineIsLightAsItsUserSays, and not otherwise (E5).
func TestOwnEngineIsLightAsItsUserSays(t *testing.T) {
	k := Known{
		Binaries: map[string][]string{"mine": {"mine"}, "open": {"open"}},
		Own:      map[string]Own{"mine": {Args: words("run {prompt}"), Confines: "in a box", LightArgs: words("--box tight")}, "open": {Args: words("run {prompt}"), LightArgs: words("--box")}},
		Resolve:  links(nil),
	}
	for argv, want := range map[string]string{
		"mine run x": "mine run x --box tight", "nice mine run -- x": "nice mine run --box tight -- x", "mine": "mine --box tight",
	} {
		if got, _, err := k.Light("mine", words(argv), "/w", ""); err != nil || !slices.Equal(got, words(want)) {
			t.Errorf("%s: %q, %v, want %q", argv, got, err, want)
		}
	}
	for name, argv := range map[string]string{"open": "open run x", "": "make", "nobody": "nobody"} {
		if _, _, err := k.Light(name, words(argv), "/w", ""); !errors.As(err, new(*Unconfined)) {
			t.Errorf("%s: %v", argv, err)
		}
	}
	if _, _, err := k.Light("mine", []string{"sh", "-c", "mine run x"}, "/w", ""); !errors.As(err, new(*Lifted)) {
		t.Errorf("in a shell's text: %v", err)
	}
}

func TestOwnEngineIsReadAsItSays(t *testing.T) {
	k := Known{
		Binaries: map[string][]string{"mine": {"mine"}, "mute": {"mute"}},
		Own:      map[string]Own{"mine": {Args: words("run --json {prompt}"), Stream: "pi"}, "mute": {Args: words("run {prompt}"), Stream: "none"}},
		Resolve:  noDisk(t),
	}
	for argv, want := range map[string]bool{
		"mine run --json x": true, "env A=1 mine --json run": true, "mine run x": false, "mine": false, "mute run x": false, "pi --mode json": false,
	} {
		name, _, _ := strings.Cut(strings.TrimPrefix(argv, "env A=1 "), " ")
		if got := k.Streams(name, words(argv)); got != (want || argv == "pi --mode json") {
			t.Errorf("%s: %v, want %v", argv, got, want)
		}
	}
	if _, ok := k.Decoder("mine").(*piDecoder); !ok || k.Decoder("mute") != nil || k.Decoder("nobody") != nil || k.Decoder("gemini") == nil {
		t.Error("a decoder is not that of the stream")
	}
}
