package simulated

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/bcc94042/instar/providers"
)

// The behaviours of images.
const (
	ok         = "ok"
	slow       = "slow"
	neverReady = "never-ready"
	fail       = "fail"
	flapping   = "flap"
	down       = "down"
)

// plan is what becomes of one revision, in times after its apply.
type plan struct {
	behaviour      string
	observe, ready time.Duration
	route, period  time.Duration
	answer         time.Duration // that the apply takes, whoever waits
}

// parse reads an image.
func (g *Gateway) parse(image string) (plan, error) {
	p := plan{observe: g.Observed, ready: g.Ready, route: g.Route, period: 2 * time.Second}
	rest, found := strings.CutPrefix(image, "sim:")
	name, query, _ := strings.Cut(rest, "?")
	p.behaviour = name
	if !found || !slices.Contains([]string{ok, slow, neverReady, fail, flapping, down}, name) {
		return p, providers.Errorf(providers.Invalid, "image: there is no %q; there are %s", image, strings.Join(images, ", "))
	}
	if name == slow {
		p.ready = 3 * time.Second
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return p, providers.Errorf(providers.Invalid, "image: %q: %v", image, err)
	}
	fields := map[string]*time.Duration{"observe": &p.observe, "ready": &p.ready, "route": &p.route, "period": &p.period, "answer": &p.answer}
	for key := range values {
		field := fields[key]
		if field == nil {
			return p, providers.Errorf(providers.Invalid, "image: %q has the unknown parameter %q", image, key)
		}
		if *field, err = time.ParseDuration(values.Get(key)); err != nil || *field < 0 {
			return p, providers.Errorf(providers.Invalid, "image: %q: %s is no duration", image, key)
		}
	}
	p.period = max(p.period, time.Millisecond)
	return p, nil
}

var images = []string{"sim:ok", "sim:slow", "sim:never-ready", "sim:fail", "sim:flap", "sim:down"}
