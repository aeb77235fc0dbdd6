package admin

// What was done with dead letters, by whom and why: settle writes an event for each letter into EVENTS, as one of DEAD_LETTERS, as no machine can be called, and GET /v1/dead-letters/settled reads them, the newest first.

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/nats-io/nats.go"

	"github.com/bcc94042/instar/api/auth"
	"github.com/bcc94042/instar/api/problem"
	"github.com/bcc94042/instar/api/rest"
	"github.com/bcc94042/instar/streams"
)

// What is done with a letter.
const (
	redriven = "redriven"
	edited   = "edited"
	dropped  = "dropped"
)

// Settled is what somebody has done with a dead letter.
type Settled struct {
	Time     time.Time `json:"time"`
	Action   string    `json:"action" enum:"redriven,edited,dropped" doc:"edited: its command was sent with another body, and applied"`
	Actor    string    `json:"actor" doc:"Who has done it"`
	Why      string    `json:"why,omitempty" doc:"As whoever did it has said"`
	Seq      uint64    `json:"seq" doc:"That the letter had"`
	GivenUp  time.Time `json:"givenUp" doc:"When it became a letter"`
	Consumer string    `json:"consumer" doc:"That gave up on it"`
	Machine  string    `json:"machine"`
	Key      string    `json:"key"`
	Subject  string    `json:"subject" doc:"Where it came from"`
	Reason   string    `json:"reason" doc:"Of the letter"`
}

// SettledList is a page of them.
type SettledList struct {
	Items      []Settled `json:"items" nullable:"false" doc:"The newest first"`
	NextCursor string    `json:"nextCursor" doc:"Pass it as cursor= for those before; empty on the last page"`
}

func (s *Service) settledRoute(r *rest.Router, tags []string) *rest.Route {
	return &rest.Route{Role: auth.Read, Serve: s.settled, Op: huma.Operation{
		OperationID: "list-settled-dead-letters", Method: http.MethodGet, Path: "/v1/dead-letters/settled", Tags: tags, Summary: "List what was done with dead letters, the newest first", Errors: []int{422, 503},
		Description: "Who has redriven, edited or dropped which letter, when, and why. It is kept for 3 years, or as long as EVENTS has room. What a letter held is not kept. That it is dropped is recorded before: where it then could not be, it is still listed, or was redriven meanwhile.",
		Parameters:  append(rest.NewestParams(), rest.QueryParam("machine", "Only letters of this machine", rest.Text(63))),
		Responses:   map[string]*huma.Response{"200": {Description: "A page", Content: r.BodyOf(reflect.TypeFor[SettledList]())}},
	}}
}

// settle records what is done with a letter.
func (s *Service) settle(q *rest.Request, l DeadLetter, action, why string) error {
	machine, key := l.Machine, l.Key
	if _, _, _, err := streams.SplitKey(key); err != nil || streams.CheckToken(machine) != nil { // whoever may write letters may write anything into them
		machine, key = unaddressed, unaddressed+"."+unaddressed
	}
	now := time.Now().UTC()
	data, err := json.Marshal(Settled{
		Time: now, Action: action, Actor: q.Who.Name, Why: why, Seq: l.Seq, GivenUp: l.Time.UTC(),
		Consumer: l.Consumer, Machine: machine, Key: key, Subject: l.Subject, Reason: l.Reason,
	})
	if err != nil {
		return err
	}
	msg := &nats.Msg{Subject: s.store.Names.Event(streams.DeadStream, machine+"."+key, action), Data: data, Header: nats.Header{}}
	id := fmt.Sprintf("dead-letter/%d/%d/%s/%s", l.Seq, l.Time.UnixNano(), action, q.Id) // each request is one: another one that drops it again is another person's, and has another reason
	streams.CloudEvent(msg, id, "/instar/dead-letters", "dead-letter."+action, key, now)
	streams.Keep(msg, streams.LifeOf("state"))
	ctx, cancel := lasting(q)
	defer cancel()
	if _, err := s.store.JS.PublishMsg(ctx, msg); err != nil {
		return fmt.Errorf("cannot record that dead letter %d is %s: %w", l.Seq, action, err)
	}
	return nil
}

// unrecorded has the log say what was done, and is not taken back, where that could not be recorded.
func (s *Service) unrecorded(q *rest.Request, l DeadLetter, action, why string, err error) {
	s.rest.Log.Error("what was done with a dead letter is recorded here only", "request", q.Id, "actor", q.Who.Name, "reason", why, "sequence", l.Seq, "machine", l.Machine, "key", l.Key, "action", action, "error", err)
}

func (s *Service) settled(q *rest.Request) error {
	machine, keys := "*", ">"
	if name := q.Query.Get("machine"); name != "" {
		if streams.CheckToken(name) != nil {
			return problem.Invalid("query.machine", "is no name of a machine")
		}
		machine = name
	}
	if q.Who.Namespace != auth.AnyNamespace {
		keys = q.Who.Namespace + ".>"
	}
	found, next, err := s.store.Newest(q, s.store.Names.Stream(streams.EventStream), s.store.Names.Event(streams.DeadStream, machine, keys))
	if err != nil {
		return err
	}
	out := SettledList{Items: []Settled{}, NextCursor: next}
	for _, m := range found {
		var one Settled
		if json.Unmarshal(m.Data, &one) == nil && sees(q, DeadLetter{Machine: one.Machine, Key: one.Key}) {
			out.Items = append(out.Items, one)
		}
	}
	return q.JSON(http.StatusOK, out)
}
