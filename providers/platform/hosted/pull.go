package hosted

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/bcc94042/instar/providers"
)

// pull has the engine get an image, for as long as it tells that it is at it. What goes wrong is in the last lines of the answer.
func (d *Docker) pull(ctx context.Context, image string, tell func(status string)) error {
	tell("getting the image " + image)
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
	far := layers{}
	for lines := json.NewDecoder(answer); ; {
		var line progress
		switch err := lines.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return failed(unreached(ctx, err))
		case line.Error != "":
			return providers.Errorf(providers.Unavailable, "docker cannot get the image %s: %s", image, line.Error)
		}
		clock.Reset(patience)
		if percent, ok := far.add(&line); ok {
			tell(fmt.Sprintf("getting the image %s: %d %%", image, percent))
		}
	}
}

// progress is a line of the answer: how many bytes of a layer are there, or what is wrong.
type progress struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Detail struct {
		Current int64 `json:"current"`
		Total   int64 `json:"total"`
	} `json:"progressDetail"`
	Error string `json:"error"`
}

// layers are the bytes of the layers of an image that have come, and all of them.
type layers map[string][2]int64

// step is by how many percent progress is told, so that a download is a few events.
const step = 10

// add takes note of a line, and returns how much has come of all that is known of, in whole steps. Layers are told of as they begin, so that it may fall.
func (l layers) add(p *progress) (percent int64, ok bool) {
	if p.Status != "Downloading" || p.Detail.Total <= 0 {
		return 0, false
	}
	l[p.ID] = [2]int64{p.Detail.Current, p.Detail.Total}
	var come, all int64
	for _, n := range l {
		come, all = come+n[0], all+n[1]
	}
	return 100 * come / all / step * step, true
}
