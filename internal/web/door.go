package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"sync"
)

// keyHeader has the session's key with every call. The cookie alone opens
// nothing: cookies do not know ports, so that a browser sends ours to every other
// server of this machine, whoever runs that. The key stands in the page's storage,
// which belongs to this address and port.
const keyHeader = "X-Handsel-Key"

// policy lets the page use what comes from here, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// door lets in whoever brings the token, once, and from then on whoever has the
// session.
type door struct {
	token   string
	session string // in the cookie
	key     string // in the header
	cookie  string // its name, which no other server of ours shares
	hosts   map[string]bool

	mu   sync.Mutex
	used bool
}

func newDoor(addr string) *door {
	_, port, _ := strings.Cut(addr[strings.LastIndexByte(addr, ':'):], ":")
	hosts := map[string]bool{addr: true, "localhost:" + port: true}
	if port == "80" { // which browsers leave out
		hosts[strings.TrimSuffix(addr, ":80")], hosts["localhost"] = true, true
	}
	return &door{token: secret(), session: secret(), key: secret(), cookie: "handsel_" + secret()[:8], hosts: hosts}
}

// secret is 256 random bits.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never returns an error
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// same compares in a time that tells nothing.
func same(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// guard is in front of everything: who asks must have meant this server, from a
// page of this server.
func (d *door) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Frame-Options", "DENY")
		switch {
		case !d.hosts[r.Host]:
			refuse(w, http.StatusMisdirectedRequest, "foreign_host", "this is handsel web, and it was asked for under another name")
		case !d.ours(r):
			refuse(w, http.StatusForbidden, "foreign_origin", "only the page of this server may ask")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ours tells whether a request comes from our page, or from no page at all.
func (d *door) ours(r *http.Request) bool {
	origins := r.Header.Values("Origin")
	for _, o := range origins {
		u, err := url.Parse(o)
		if err != nil || len(origins) > 1 || o != "http://"+r.Host || u.Host != r.Host {
			return false
		}
	}
	if r.Method == http.MethodPost && len(origins) == 0 {
		return false // every browser names it
	}
	if !strings.HasPrefix(r.URL.Path, "/api/") {
		return true // a link to the page may stand anywhere: it shows nothing by itself
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "" || site == "same-origin"
}

// enter takes the token for a session. It does so once.
func (d *door) enter(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Token string `json:"token"`
	}
	if !readBody(w, r, &in) {
		return
	}
	d.mu.Lock()
	right := same(in.Token, d.token)
	late := d.used
	d.used = d.used || right
	d.mu.Unlock()
	switch {
	case !right:
		refuse(w, http.StatusForbidden, "bad_token", "this is not the link that handsel web printed")
	case late:
		refuse(w, http.StatusForbidden, "used_token", "this link was opened before, and a link works once")
	default:
		http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		answer(w, map[string]any{"v": 1, "key": d.key})
	}
}

// inside lets those through who have the session.
func (d *door) inside(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := r.Cookie(d.cookie)
		d.mu.Lock()
		open := d.used
		d.mu.Unlock()
		if err != nil || !open || !same(c.Value, d.session) || !same(r.Header.Get(keyHeader), d.key) {
			refuse(w, http.StatusUnauthorized, "no_session", "this page has no session with handsel web")
			return
		}
		next(w, r)
	}
}
