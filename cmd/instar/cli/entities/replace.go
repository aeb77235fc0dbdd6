package entities

// A command that replaces what an entity has begins with that, as the forms of the console do: flags change some of it, and the rest stays. It is sent for the revision that was read, and begun anew
// when the entity has changed since. A body that comes from a file is whole, and so is one under a key of the caller's: a repeat has to be the same, whatever is there by then. A command that may begin a life says all of it.

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/form"
	"github.com/bcc94042/instar/machines"
)

const (
	mostBegun    = 5 // as the entity changes all the time
	replacesHelp = "\n\nFlags change what is there: what none of them names stays as it is, a list or a map is replaced as a whole, and an empty text takes one away. " +
		"A body in a file is taken as it is, and so are flags with --idempotency-key, which a repeat has to give again."
)

// replaces reports whether a command takes the place of what an entity has that is in a state; "" is any that is not the beginning of a life.
func replaces(m *machines.Machine, c machines.Command, state string) bool {
	return c.Replaces && !c.Birth && slices.ContainsFunc(m.Edges, func(e machines.EdgeInfo) bool {
		st, there := m.State(e.From)
		return e.On == c.Name && there && !st.Terminal && (state == "" || e.From == state)
	})
}

// post sends a command, of which the body says all, or what it changes.
func post(s *command.Session, m *machines.Machine, c machines.Command, at string, query url.Values, body []byte, o *sending) (*client.Response, error) {
	o.given = o.key != ""
	for try := 1; ; try++ {
		whole, match, err := onto(s, m, c, at, body, o)
		if err != nil {
			return nil, err
		}
		if o.over = match != ""; o.over && o.ifMatch == "" {
			o.begun = match
		}
		header, err := o.header()
		if err != nil {
			return nil, err
		}
		resp, err := s.Do(s.Ctx, client.Request{Method: http.MethodPost, Path: at + "/" + c.Name, Query: query, Header: header, Body: whole})
		if p := new(client.Problem); o.begun == "" || try == mostBegun || !errors.As(err, &p) || p.Code != machines.CodePrecondition {
			return resp, err
		}
		o.key, o.begun = "", "" // a refusal is repeated under its key
	}
}

// onto puts what a body changes over what the entity has, and says at which revision.
func onto(s *command.Session, m *machines.Machine, c machines.Command, at string, body []byte, o *sending) (whole []byte, revision string, err error) {
	if o.file != "" || o.given || !replaces(m, c, "") {
		return body, "", nil
	}
	resp, err := s.Do(s.Ctx, client.Request{Path: at, Query: s.Scoped(nil)})
	if command.CodeOf(err) == command.ExitNotFound && err != nil {
		return body, "", nil // the server says so, or it begins a life
	}
	if err != nil {
		return nil, "", err
	}
	var e struct {
		State    string            `json:"state"`
		Revision uint64            `json:"revision"`
		Labels   map[string]string `json:"labels"`
		Data     json.RawMessage   `json:"data"`
	}
	if err := json.Unmarshal(resp.Body, &e); err != nil {
		return nil, "", err
	}
	if !replaces(m, c, e.State) || len(e.Data) == 0 {
		return body, "", nil
	}
	if says, err := form.Object(body); err == nil && len(says) == 0 {
		return nil, "", command.Usagef("no flag says what to change; one with an empty text takes away what it names")
	}
	has, err := form.Object(e.Data)
	if err != nil {
		return nil, "", err
	}
	if _, own := has["labels"]; !own && len(e.Labels) > 0 {
		has["labels"] = e.Labels
	}
	whole, err = form.Of(c.Body).Over(body, has)
	return whole, strconv.FormatUint(e.Revision, 10), err
}
