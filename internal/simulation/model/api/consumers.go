package api

// The API of consumers: create and update, info, names, list, delete, pause, reset.

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/consumer"
	"github.com/bcc94042/instar/internal/simulation/model/core"
	"github.com/bcc94042/instar/internal/simulation/model/store"
)

func (a *API) consumerRequest(m store.Message, t []string) {
	switch {
	case len(t) >= 5 && t[3] == "CREATE" || len(t) == 7 && t[3] == "DURABLE" && t[4] == "CREATE":
		a.consumerCreate(m, t)
	case len(t) == 6 && t[3] == "INFO":
		a.consumerInfo(m, t[4], t[5])
	case len(t) == 6 && t[3] == "DELETE":
		a.consumerDelete(m, t[4], t[5])
	case len(t) == 6 && t[3] == "PAUSE":
		a.consumerPause(m, t[4], t[5])
	case len(t) == 5 && t[3] == "NAMES":
		a.consumerNames(m, t[4])
	case len(t) == 5 && t[3] == "LIST":
		a.consumerList(m, t[4])
	default:
		a.bad(m)
	}
}

func (a *API) consumerCreate(m store.Message, t []string) {
	r := &server.JSApiConsumerCreateResponse{ApiResponse: kind(server.JSApiConsumerCreateResponseType)}
	var req server.CreateConsumerRequest
	if err := parse(m.Data, &req); err != nil {
		r.Error = server.NewJSInvalidJSONError(err)
		a.answer(m, r)
		return
	}
	stream, name := t[4], at(t, 5)
	durable := t[3] == "DURABLE"
	if durable {
		stream, name = t[5], t[6]
	}
	if len(t) == 5 {
		name = req.Config.Name
	}
	filter := ""
	if !durable && len(t) > 6 {
		filter = strings.Join(t[6:], ".")
	}
	if r.Error = addressed(&req, stream, name, filter, durable, len(t) == 5); r.Error == nil {
		r.Error = a.createConsumer(&req, name, r)
		if r.Error == nil && r.ConsumerInfo == nil {
			return
		}
	}
	a.answer(m, r)
	if o := a.c.Consumer(stream, name); o != nil {
		o.RunSignaled()
	}
}

// addressed checks that a request says in its subject what it says in its body.
func addressed(req *server.CreateConsumerRequest, stream, name, filter string, durable, legacy bool) *server.ApiError {
	cfg := &req.Config
	switch {
	case stream != req.Stream:
		return server.NewJSStreamMismatchError()
	case strings.ContainsAny(name, `\/`):
		return server.NewJSConsumerNameContainsPathSeparatorsError()
	case durable && cfg.Durable == "":
		return server.NewJSConsumerDurableNameNotSetError()
	case !legacy && cfg.Durable != "" && name != cfg.Durable:
		return server.NewJSConsumerDurableNameNotMatchSubjectError()
	case legacy && cfg.Durable != "":
		return server.NewJSConsumerEphemeralWithDurableNameError()
	case filter != "" && len(cfg.FilterSubjects) > 0:
		return server.NewJSConsumerMultipleFiltersNotAllowedError()
	case filter != "" && cfg.FilterSubject != filter:
		return server.NewJSConsumerCreateFilterSubjectMismatchError()
	}
	if !legacy {
		cfg.Name = name
	}
	return nil
}

func (a *API) createConsumer(req *server.CreateConsumerRequest, name string, r *server.JSApiConsumerCreateResponse) *server.ApiError {
	if req.Config.Replicas > a.c.Replicas() {
		return server.NewJSStreamReplicasNotSupportedError()
	}
	s, err := a.found(req.Stream)
	if err != nil || s == nil {
		return err
	}
	cfg := &req.Config
	if cfg.Direct || cfg.Sourcing || cfg.AckPolicy == server.AckFlowControl || cfg.PriorityPolicy != server.PriorityNone || cfg.RateLimit > 0 || cfg.ReplayPolicy != server.ReplayInstant || cfg.DeliverGroup != "" {
		return server.NewJSConsumerCreateError(core.ErrNotModelled)
	}
	if o := s.Consumer(name); o != nil {
		cfg.PauseUntil = o.Config().PauseUntil
	}
	cfg.Metadata = store.Static(cfg.Metadata)
	level := "0"
	if cfg.PauseUntil != nil && !cfg.PauseUntil.IsZero() {
		level = "1"
	}
	cfg.Metadata[server.JSRequiredLevelMetadataKey] = level
	o, apiErr := s.AddConsumer(cfg, req.Action)
	if apiErr != nil {
		return apiErr
	}
	r.ConsumerInfo = o.Info()
	return nil
}

func (a *API) consumerInfo(m store.Message, stream, name string) {
	r := &server.JSApiConsumerInfoResponse{ApiResponse: kind(server.JSApiConsumerInfoResponseType)}
	s, err := a.found(stream)
	switch {
	case !empty(m.Data):
		r.Error = server.NewJSNotEmptyRequestError()
	case err != nil:
		r.Error = err
	case s == nil:
		return
	case s.Consumer(name) == nil:
		r.Error = server.NewJSConsumerNotFoundError()
	default:
		r.ConsumerInfo = s.Consumer(name).Info()
	}
	a.answer(m, r)
}

func (a *API) consumerDelete(m store.Message, stream, name string) {
	r := &server.JSApiConsumerDeleteResponse{ApiResponse: kind(server.JSApiConsumerDeleteResponseType)}
	s, err := a.found(stream)
	switch {
	case !empty(m.Data):
		r.Error = server.NewJSNotEmptyRequestError()
	case err != nil:
		r.Error = err
	case s == nil:
		return
	case s.Consumer(name) == nil:
		r.Error = server.NewJSConsumerNotFoundError()
	default:
		s.RemoveConsumer(s.Consumer(name))
		r.Success = true
	}
	a.answer(m, r)
}

func (a *API) consumerPause(m store.Message, stream, name string) {
	r := &server.JSApiConsumerPauseResponse{ApiResponse: kind(server.JSApiConsumerPauseResponseType)}
	var req server.JSApiConsumerPauseRequest
	if err := a.listRequest(m, &req); err != nil {
		r.Error = err
		a.answer(m, r)
		return
	}
	s, err := a.found(stream)
	if s == nil && err == nil {
		return
	}
	var o *consumer.Consumer
	if s != nil {
		o = s.Consumer(name)
	}
	switch {
	case err != nil:
		r.Error = err
	case o == nil:
		r.Error = server.NewJSConsumerNotFoundError()
	default:
		until := req.PauseUntil.UTC()
		o.Pause(until)
		r.PauseUntil = until
		if r.Paused = a.c.Now().Before(until); r.Paused {
			r.PauseRemaining = until.Sub(a.c.Now())
		}
	}
	a.answer(m, r)
}

func (a *API) consumerReset(m store.Message, t []string) {
	o := a.c.Consumer(at(t, 4), at(t, 5))
	if o == nil || len(t) != 6 {
		return
	}
	if m.Reply == "" || a.c.Stream(t[4]).Silent() {
		return
	}
	r := &server.JSApiConsumerResetResponse{ApiResponse: kind(server.JSApiConsumerResetResponseType)}
	var req server.JSApiConsumerResetRequest
	if len(m.Data) > 0 {
		if err := json.Unmarshal(m.Data, &req); err != nil {
			r.Error = server.NewJSInvalidJSONError(err)
			a.answer(m, r)
			return
		}
	}
	if err := o.MayReset(req.Seq); err != nil {
		r.Error = server.NewJSConsumerInvalidResetError(err)
	} else {
		r.ResetSeq = o.Reset(req.Seq)
		r.ConsumerInfo = o.Info()
	}
	a.answer(m, r)
	if r.Error == nil {
		o.Run()
	}
}

func (a *API) consumerNames(m store.Message, stream string) {
	r := &server.JSApiConsumerNamesResponse{ApiResponse: kind(server.JSApiConsumerNamesResponseType), Consumers: []string{}}
	var req server.JSApiConsumersRequest
	if r.Error = a.listRequest(m, &req); r.Error != nil {
		a.answer(m, r)
		return
	}
	s, err := a.found(stream)
	if s == nil && err == nil {
		return
	}
	if r.Error = err; err == nil {
		names := consumerNames(s)
		r.ApiPaged = server.ApiPaged{Total: len(names), Offset: min(req.Offset, len(names)), Limit: server.JSApiNamesLimit}
		r.Consumers = append(r.Consumers, page(names, req.Offset, server.JSApiNamesLimit)...)
	}
	a.answer(m, r)
}

func (a *API) consumerList(m store.Message, stream string) {
	r := &server.JSApiConsumerListResponse{ApiResponse: kind(server.JSApiConsumerListResponseType), Consumers: []*server.ConsumerInfo{}}
	var req server.JSApiConsumersRequest
	if r.Error = a.listRequest(m, &req); r.Error != nil {
		a.answer(m, r)
		return
	}
	s, err := a.found(stream)
	if s == nil && err == nil {
		return
	}
	if r.Error = err; err == nil {
		names := consumerNames(s)
		r.ApiPaged = server.ApiPaged{Total: len(names), Offset: min(req.Offset, len(names)), Limit: server.JSApiListLimit}
		for _, n := range page(names, req.Offset, server.JSApiListLimit) {
			r.Consumers = append(r.Consumers, stored(s.Consumer(n).Info()))
		}
	}
	a.answer(m, r)
}

// stored is an info with the metadata that is stored, which is what a list has.
func stored(i *server.ConsumerInfo) *server.ConsumerInfo {
	i.Config.Metadata = store.Static(i.Config.Metadata)
	return i
}

func consumerNames(s *core.Stream) []string {
	names := make([]string, 0, len(s.Consumers()))
	for _, o := range s.Consumers() {
		names = append(names, o.Name())
	}
	slices.Sort(names)
	return names
}
