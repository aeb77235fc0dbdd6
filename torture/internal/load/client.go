package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/internal/wait"
	"github.com/bcc94042/instar/torture/internal/check"
)

// Client sends one command at a time.
type Client struct {
	Name    string
	Bases   []string   // URLs of the servers; the next one is tried when one does not answer
	NC      *nats.Conn // when set, some commands go over NATS
	Journal *Journal
	Rand    *rand.Rand
	Via     http.RoundTripper // of servers that want more than a URL

	http *http.Client
	base int
	n    int
}

// Key is the key of an entity.
func Key(id string) string { return "default." + id }

// answer is what one try brought.
type answer struct {
	Outcome   string `json:"outcome"`
	State     string `json:"state"`
	Version   uint64 `json:"version"`
	Revision  uint64 `json:"revision"`
	Duplicate bool   `json:"-"`    // it is the answer to an earlier try
	Code      string `json:"code"` // of a problem over HTTP
	Refusal   *struct {
		Code string `json:"code"`
	} `json:"refusal"` // over NATS

	outcome, code string // empty: no answer yet
	stored        bool
	after         time.Duration // to wait before the next try
}

// Do sends a command and repeats it under the same id until it is answered or ctx ends. expect is the revision that the
// entity must be at, or 0.
func (c *Client) Do(ctx context.Context, id, name string, body any, expect uint64) check.Command {
	raw := []byte("{}")
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			panic(err) // of strings and numbers
		}
	}
	c.n++
	return c.repeat(ctx, id, check.Command{ID: fmt.Sprintf("%s-%d", c.Name, c.n), Key: Key(id), Name: name, Body: string(raw)}, expect)
}

func (c *Client) repeat(ctx context.Context, id string, cmd check.Command, expect uint64) check.Command {
	entry := c.Journal.begin(cmd)
	overNATS := c.NC != nil && c.Rand.IntN(3) == 0
	for {
		tried := time.Now()
		var a answer
		if overNATS {
			a = c.overNATS(ctx, cmd, expect)
		} else {
			a = c.overHTTP(ctx, id, cmd, expect)
		}
		if c.Journal.note(entry, tried, a) {
			return *entry
		}
		if !wait.For(ctx, max(a.after, time.Duration(10+c.Rand.IntN(20))*time.Millisecond)) {
			return *entry
		}
	}
}

// Repeat sends a command again under the id that it had.
func (c *Client) Repeat(ctx context.Context, id string, cmd check.Command) check.Command {
	return c.repeat(ctx, id, check.Command{ID: cmd.ID, Key: cmd.Key, Name: cmd.Name, Body: cmd.Body}, 0)
}

// tryWithin is the patience of a client with one try.
const tryWithin = 1500 * time.Millisecond

func (c *Client) client() *http.Client {
	if c.http == nil {
		c.http = &http.Client{Timeout: tryWithin, Transport: &http.Transport{MaxIdleConnsPerHost: 2}}
		if c.Via != nil {
			c.http.Transport = c.Via
		}
	}
	return c.http
}

func (c *Client) url(id, tail string) string {
	return c.Bases[c.base%len(c.Bases)] + "/v1/services/" + id + tail + "?namespace=default"
}

func (c *Client) overHTTP(ctx context.Context, id string, cmd check.Command, expect uint64) answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url(id, "/"+cmd.Name), bytes.NewReader([]byte(cmd.Body)))
	if err != nil {
		panic(err) // a wrong URL
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", cmd.ID)
	if expect != 0 {
		r.Header.Set("If-Match", `"`+strconv.FormatUint(expect, 10)+`"`)
	}
	res, err := c.client().Do(r)
	if err != nil {
		c.base++
		return answer{}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}
	}
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil {
		return answer{}
	}
	a.Duplicate = res.Header.Get("Idempotent-Replayed") == "true"
	return a.judge(res.StatusCode)
}

// judge reads the answer by its status.
func (a answer) judge(status int) answer {
	switch {
	case status == http.StatusOK:
		a.outcome = a.Outcome
		if a.Refusal != nil {
			a.outcome, a.code = check.Refused, a.Refusal.Code
		}
	case status == http.StatusAccepted:
		a.stored = true
	case status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout:
		a.after = 50 * time.Millisecond
	case a.Code == "dead":
		a.outcome, a.code = check.Dead, a.Code
	case status >= 400 && status < 500:
		a.outcome, a.code = check.Refused, a.Code
	}
	if a.code == "outcome-unknown" {
		a.outcome = check.Unknown
	}
	return a
}

func (c *Client) overNATS(ctx context.Context, cmd check.Command, expect uint64) answer {
	m := nats.NewMsg("instar.api.cmd." + check.Machine + "." + cmd.Key + "." + cmd.Name)
	m.Data = []byte(cmd.Body)
	m.Header.Set(nats.MsgIdHdr, check.Machine+"/"+cmd.Key+"/"+cmd.ID)
	if expect != 0 {
		m.Header.Set("Instar-Expect-Revision", strconv.FormatUint(expect, 10))
	}
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	res, err := c.NC.RequestMsgWithContext(ctx, m)
	if err != nil {
		return answer{}
	}
	var a answer
	if err := json.Unmarshal(res.Data, &a); err != nil {
		return answer{}
	}
	status := http.StatusOK
	if code := res.Header.Get("Nats-Service-Error-Code"); code != "" {
		if status, err = strconv.Atoi(code); err != nil {
			return answer{}
		}
	}
	a.Duplicate = res.Header.Get("Instar-Replayed") != ""
	return a.judge(status)
}

// View is what a read of one entity says.
type View struct {
	State    string            `json:"state"`
	Version  uint64            `json:"version"`
	Labels   map[string]string `json:"labels"`
	Revision uint64            `json:"revision"`
}

// ErrAbsent says that there is no such entity.
var ErrAbsent = errors.New("no such entity")

// Get reads an entity once.
func (c *Client) Get(ctx context.Context, id string) (View, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url(id, ""), nil)
	if err != nil {
		panic(err) // a wrong URL
	}
	res, err := c.client().Do(r)
	if err != nil {
		c.base++
		return View{}, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return View{}, err
	case res.StatusCode == http.StatusNotFound:
		return View{}, ErrAbsent
	case res.StatusCode != http.StatusOK:
		return View{}, fmt.Errorf("status %d: %s", res.StatusCode, raw)
	}
	var v View
	err = json.Unmarshal(raw, &v)
	return v, err
}
