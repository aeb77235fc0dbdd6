package hosted

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/bcc94042/instar/providers"
)

// pull has the engine get an image, for as long as it tells that it is at it. What goes wrong is in the last lines of the answer.
func (d *Docker) pull(ctx context.Context, image string) error {
	name, tag := image, "latest" // without one, the engine would get them all
	if at := strings.LastIndexByte(image, ':'); strings.Contains(image, "@") {
		tag = "" // it has a digest
	} else if at > strings.LastIndexByte(image, '/') {
		name, tag = image[:at], image[at+1:]
	}
	patience := cmp.Or(d.Patience, 5*time.Minute)
	silent := providers.Errorf(providers.Unavailable, "docker has told nothing of how it gets the image %s for %s", image, patience)
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	clock := time.AfterFunc(patience, func() { cancel(silent) })
	defer clock.Stop()
	failed := func(err error) error {
		if ctx.Err() == nil && within.Err() != nil {
			return silent
		}
		return err
	}
	answer, err := d.ask(within, "POST", "/images/create?"+url.Values{"fromImage": {name}, "tag": {tag}}.Encode(), nil)
	if err != nil {
		return failed(err)
	}
	defer func() { _ = answer.Close() }() // it was read
	for lines := json.NewDecoder(answer); ; {
		var line struct {
			Error string `json:"error"`
		}
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return failed(unreached(ctx, err))
		case line.Error != "":
			return providers.Errorf(providers.Unavailable, "docker cannot get the image %s: %s", image, line.Error)
		}
		clock.Reset(patience)
	}
}
