package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// tracePlace is where an address of a trace has its id.
const tracePlace = "{trace}"

func (u UI) validate() error {
	var errs []error
	for key, text := range map[string]string{"ui.traceUrl": strings.ReplaceAll(u.Trace, tracePlace, "0"), "ui.grafanaUrl": u.Grafana} {
		at, err := url.Parse(text)
		if text != "" && (err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https") {
			errs = append(errs, fmt.Errorf("%s: %q is no address that begins with http:// or https://", key, text))
		}
	}
	if u.Trace != "" && strings.Count(u.Trace, tracePlace) != 1 {
		errs = append(errs, fmt.Errorf("ui.traceUrl: %q needs %s once, where the id of the trace is to be", u.Trace, tracePlace))
	}
	return errors.Join(errs...)
}
