package profile

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/handsel/handsel/internal/home"
)

// setting is one key of a profile, with its place.
type setting struct {
	key   string
	line  int
	value any
}

// load reads one file. fs.ErrNotExist when there is none of that kind.
func (d dir) load(name, kind string) (*Profile, error) {
	p := &Profile{Name: name, Path: filepath.Join(d.path, name+kind), Project: d.project}
	data, err := home.ReadFile(p.Path, maxFile)
	if err == nil {
		err = home.TrustParent(p.Path)
	}
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(data) || strings.ContainsRune(string(data), 0) {
		return nil, &Bad{Path: p.Path, Why: "it is not text in UTF-8"}
	}
	read := p.markdown
	if kind == ".toml" {
		read = p.toml
	}
	settings, err := read(strings.TrimPrefix(string(data), "\ufeff"))
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, s := range settings {
		if seen[s.key] {
			return nil, &Bad{p.Path, s.line, strconv.QuoteToASCII(s.key) + " is set twice"}
		}
		seen[s.key] = true
		if err := p.set(s); err != nil {
			return nil, &Bad{p.Path, s.line, s.key + ": " + err.Error()}
		}
	}
	return p, nil
}

const fence = "---"

// markdown is a text with YAML in front of it, between two lines of dashes. The
// text is the agent's instructions; without the lines all of it is.
func (p *Profile) markdown(text string) ([]setting, error) {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	front, body, found := strings.Cut(text, "\n")
	if strings.TrimRight(front, " \t") != fence {
		p.System = strings.TrimSpace(text)
		return nil, nil
	}
	var head strings.Builder
	for found {
		var line string
		line, body, found = strings.Cut(body, "\n")
		if strings.TrimRight(line, " \t") == fence {
			p.System = strings.TrimSpace(body)
			return p.yaml(head.String())
		}
		head.WriteString(line + "\n")
	}
	return nil, &Bad{p.Path, 1, "the settings that begin here have no end: a line of three dashes"}
}

// yaml reads the settings in front. Its lines come after that of the dashes.
func (p *Profile) yaml(text string) ([]setting, error) {
	file, err := parser.ParseBytes([]byte(text), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, p.syntax(err)
	}
	var all []setting
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		pairs, ok := doc.Body.(ast.MapNode)
		if !ok {
			return nil, &Bad{p.Path, doc.Body.GetToken().Position.Line + 1, "the settings are not of the form key: value"}
		}
		for it := pairs.MapRange(); it.Next(); {
			s := setting{key: it.Key().GetToken().Value, line: it.Key().GetToken().Position.Line + 1}
			if err := yaml.NodeToValue(it.Value(), &s.value); err != nil {
				return nil, p.syntax(err)
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// syntax is a mistake the YAML library found.
func (p *Profile) syntax(err error) error {
	bad := &Bad{Path: p.Path, Why: err.Error()}
	if at, ok := errors.AsType[yamlError](err); ok {
		bad.Why = at.GetMessage()
		if t := at.GetToken(); t != nil && t.Position != nil {
			bad.Line = t.Position.Line + 1
		}
	}
	bad.Why, _, _ = strings.Cut(bad.Why, "\n")
	return bad
}

// toml reads a profile that is all settings; system is its instructions.
func (p *Profile) toml(text string) ([]setting, error) {
	values := map[string]any{}
	if err := toml.Unmarshal([]byte(text), &values); err != nil {
		bad := &Bad{Path: p.Path, Why: strings.TrimPrefix(err.Error(), "toml: ")}
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			bad.Line, _ = at.Position()
		}
		return nil, bad
	}
	var all []setting
	var keys unstable.Parser
	keys.Reset([]byte(text))
	inTable := false
	for keys.NextExpression() {
		node := keys.Expression()
		part := node.Key()
		if !part.Next() {
			continue
		}
		key := string(part.Node().Data)
		if node.Kind != unstable.KeyValue {
			inTable = true
		} else if inTable {
			continue // of a table, whose header is told of
		}
		line := 1 + strings.Count(text[:part.Node().Raw.Offset], "\n")
		all = append(all, setting{key, line, values[key]})
	}
	return all, nil
}

// set takes one setting. An unknown one is passed over with a warning, and so is
// a class that does not exist (E3).
func (p *Profile) set(s setting) (err error) {
	switch s.key {
	case "engine":
		p.Engine, err = word(s.value)
	case "account":
		p.Account, err = word(s.value)
	case "model":
		p.Model, err = word(s.value)
	case "system":
		if p.System != "" {
			return errors.New("the text below the settings is the instructions already")
		}
		p.System, err = word(s.value)
	case "confine":
		if p.Confine, err = word(s.value); err == nil && p.Confine != "os" && p.Confine != "none" {
			err = errors.New(`it must be "os" or "none"`)
		}
	case "workload":
		if p.Workload, _ = s.value.(string); p.Workload != heavy && p.Workload != light {
			p.Workload = heavy
			p.warn(s, fmt.Sprintf(`workload %s is neither "heavy" nor "light", so it is heavy`, strconv.QuoteToASCII(fmt.Sprint(s.value))))
		}
	case "pools":
		p.Pools, err = words(s.value)
	case "args":
		p.Args, err = words(s.value)
	case "timeout":
		p.Timeout, err = duration(s.value)
	case "idle":
		p.Idle, err = duration(s.value)
	case "review":
		var ok bool
		if p.Review, ok = s.value.(bool); !ok {
			err = errors.New("it must be true or false")
		}
	case "name", "description": // for people
	default:
		p.warn(s, "unknown key "+strconv.QuoteToASCII(s.key)+" is passed over")
	}
	return err
}

func (p *Profile) warn(s setting, why string) {
	p.Warnings = append(p.Warnings, fmt.Sprintf("%s:%d: %s", strconv.QuoteToASCII(p.Path), s.line, why))
}

func word(v any) (string, error) {
	text, ok := v.(string)
	switch {
	case !ok || text == "":
		return "", errors.New("it must be a text")
	case strings.ContainsRune(text, 0):
		return "", errors.New("it has a NUL byte, which no argument can have")
	}
	return text, nil
}

// words is a list of texts; a single text is a list of one.
func words(v any) ([]string, error) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	all := make([]string, 0, len(list))
	for _, one := range list {
		text, ok := one.(string)
		if !ok || strings.ContainsRune(text, 0) {
			return nil, errors.New("it must be a list of texts")
		}
		all = append(all, text)
	}
	return all, nil
}

// duration is as on the command line: Go's form, or whole seconds (C3).
func duration(v any) (time.Duration, error) {
	text := fmt.Sprint(v)
	d, err := time.ParseDuration(text)
	if n, bad := strconv.ParseUint(text, 10, 31); bad == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	if err != nil || d <= 0 {
		return 0, errors.New("it must be a time such as 90s, 10m or a number of seconds, more than 0")
	}
	return d, nil
}

// yamlError is what the YAML library's errors have.
type yamlError interface {
	error
	GetMessage() string
	GetToken() *token.Token
}
