package auth

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// ofHost begins the name of a secure cookie. Browsers take such a one only from the host itself: of any other name, another host of the same domain can set one, too, and
// so have a browser work with the session of somebody else.
const ofHost = "__Host-"

// errTwice is why a cookie counts for nothing.
var errTwice = errors.New("the browser sends it more than once, as when another host of this domain has set one: clear the cookies of this domain, or use https")

// SetCookie gives a browser a cookie that no script can read, for so many seconds; a negative number takes it back. It is secure where the server has TLS, or is said to;
// then its name begins with __Host-, and its path is that of the whole server.
func SetCookie(w http.ResponseWriter, r *http.Request, c *http.Cookie) {
	w.Header().Set("Cache-Control", "no-store")
	c.HttpOnly = true
	c.Secure = c.Secure || encrypted(r) || strings.HasPrefix(r.Header.Get("Origin"), "https://")
	if c.Secure {
		c.Name, c.Path = ofHost+c.Name, "/"
	}
	http.SetCookie(w, c)
}

// SetSession gives a browser the cookie of a session, see [SetCookie]. No other site has it sent.
func SetSession(w http.ResponseWriter, r *http.Request, value string, seconds int, secure bool) {
	SetCookie(w, r, &http.Cookie{Name: SessionCookie, Value: value, Path: "/", MaxAge: seconds, SameSite: http.SameSiteStrictMode, Secure: secure})
}

// Cookie is the value of a cookie that [SetCookie] has set. Where it must be secure, or the request came over TLS, one that is not counts for nothing. It fails, too,
// where there are more than one, of which only one can be of this server.
func Cookie(r *http.Request, name string, secure bool) (string, error) {
	all := r.CookiesNamed(ofHost + name)
	if len(all) == 0 && !secure && !encrypted(r) { // a proxy need not say that it has TLS
		all = r.CookiesNamed(name)
	}
	switch len(all) {
	case 0:
		return "", fmt.Errorf("cookie %s: %w", name, http.ErrNoCookie)
	case 1:
		return all[0].Value, nil
	}
	return "", fmt.Errorf("cookie %s: %w", name, errTwice)
}

// encrypted reports whether a request came over TLS, to this server or to a proxy that says so. Who lies has only cookies refused that others could have set.
func encrypted(r *http.Request) bool {
	return r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https"
}
