package api

// The API of streams: create, update, info, names, list, delete, purge, and to read and delete single messages.

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/bcc94042/instar/internal/simulation/model/core"
	"github.com/bcc94042/instar/internal/simulation/model/store"
)

func (a *API) streamRequest(m store.Message, t []string) {
	name := t[len(t)-1]
	switch {
	case len(t) == 4 && t[3] == "NAMES":
		a.streamNames(m)
	case len(t) == 4 && t[3] == "LIST":
		a.streamList(m)
	case len(t) == 5 && t[3] == "CREATE":
		a.streamCreate(m, name)
	case len(t) == 5 && t[3] == "UPDATE":
		a.streamUpdate(m, name)
	case len(t) == 5 && t[3] == "INFO":
		a.streamInfo(m, name)
	case len(t) == 5 && t[3] == "DELETE":
		a.streamDelete(m, name)
	case len(t) == 5 && t[3] == "PURGE":
		a.streamPurge(m, name)
	case len(t) == 6 && t[3] == "MSG" && t[4] == "GET":
		a.msgGet(m, name)
	case len(t) == 6 && t[3] == "MSG" && t[4] == "DELETE":
		a.msgDelete(m, name)
	default:
		a.bad(m)
	}
}

// found is the stream of a name, or why there is none to answer; neither where nobody answers for it.
func (a *API) found(name string) (*core.Stream, *server.ApiError) {
	s := a.c.Stream(name)
	switch {
	case s == nil:
		return nil, server.NewJSStreamNotFoundError()
	case s.Silent():
		return nil, nil
	}
	return s, nil
}

func kind(name string) server.ApiResponse { return server.ApiResponse{Type: name} }

func (a *API) streamCreate(m store.Message, name string) {
	r := &server.JSApiStreamCreateResponse{ApiResponse: kind(server.JSApiStreamCreateResponseType)}
	var req server.StreamConfigRequest
	if err := parse(m.Data, &req); err != nil {
		r.Error = server.NewJSInvalidJSONError(err)
		a.answer(m, r)
		return
	}
	cfg := req.StreamConfig
	core.Static(&cfg)
	switch {
	case name != cfg.Name:
		r.Error = server.NewJSStreamMismatchError()
	case strings.ContainsAny(name, `\/`):
		r.Error = server.NewJSStreamNameContainsPathSeparatorsError()
	case cfg.Sealed:
		r.Error = server.NewJSStreamInvalidConfigError(errors.New("stream configuration for create can not be sealed"))
	case cfg.MirrorDirect && cfg.Mirror == nil:
		r.Error = server.NewJSStreamInvalidConfigError(errors.New("stream has no mirror but does have mirror direct"))
	default:
		var s *core.Stream
		if s, r.Error = a.c.Create(&cfg); r.Error == nil {
			r.StreamInfo, r.DidCreate = s.Info(false), true
		}
	}
	a.answer(m, r)
}

func (a *API) streamUpdate(m store.Message, name string) {
	r := &server.JSApiStreamUpdateResponse{ApiResponse: kind(server.JSApiStreamUpdateResponseType)}
	var req server.StreamConfigRequest
	if err := parse(m.Data, &req); err != nil {
		r.Error = server.NewJSInvalidJSONError(err)
		a.answer(m, r)
		return
	}
	cfg, bad := a.c.Checked(&req.StreamConfig)
	s, err := a.found(name)
	switch {
	case bad != nil:
		r.Error = bad
	case name != cfg.Name:
		r.Error = server.NewJSStreamMismatchError()
	case err != nil:
		r.Error = err
	case s == nil:
		return
	default:
		core.Static(&cfg)
		if r.Error = s.Update(&cfg); r.Error == nil {
			r.StreamInfo = s.Info(false)
		}
	}
	a.answer(m, r)
}

// maxDetails is how many subjects an answer names.
const maxDetails = server.JSMaxSubjectDetails

func (a *API) streamInfo(m store.Message, name string) {
	r := &server.JSApiStreamInfoResponse{ApiResponse: kind(server.JSApiStreamInfoResponseType)}
	var req server.JSApiStreamInfoRequest
	if object(m.Data) {
		if err := parse(m.Data, &req); err != nil {
			r.Error = server.NewJSInvalidJSONError(err)
			a.answer(m, r)
			return
		}
	}
	s := a.c.Stream(name) // any member answers where there is no leader
	if s == nil {
		r.Error = server.NewJSStreamNotFoundError()
	} else {
		r.StreamInfo = s.Info(req.DeletedDetails)
		if r.StreamInfo.Cluster == nil { // a server alone leads
			r.StreamInfo.Cluster = &server.ClusterInfo{Leader: a.Name}
		}
		if req.SubjectsFilter != "" {
			subjectDetails(s, r, req.SubjectsFilter, max(req.Offset, 0))
		}
	}
	a.answer(m, r)
}

func subjectDetails(s *core.Stream, r *server.JSApiStreamInfoResponse, filter string, offset int) {
	all := map[string]uint64{}
	s.Log().Each(filter, func(x *store.Index) { all[x.Subject] = uint64(len(x.Seqs)) })
	if len(all) == 0 {
		return
	}
	r.Offset, r.Limit, r.Total = offset, maxDetails, len(all)
	if offset > 0 || len(all) > maxDetails {
		names := make([]string, 0, len(all))
		for k := range all {
			names = append(names, k)
		}
		slices.Sort(names)
		for i, k := range names {
			if i < offset || i >= offset+maxDetails {
				delete(all, k)
			}
		}
		if len(all) == 0 {
			all = nil
		}
	}
	r.State.Subjects = all
}

func (a *API) streamDelete(m store.Message, name string) {
	r := &server.JSApiStreamDeleteResponse{ApiResponse: kind(server.JSApiStreamDeleteResponseType)}
	s, err := a.found(name)
	switch {
	case !empty(m.Data):
		r.Error = server.NewJSNotEmptyRequestError()
	case err != nil:
		r.Error = err
	case s == nil:
		return
	default:
		a.c.Remove(s)
		r.Success = true
	}
	a.answer(m, r)
}

func (a *API) streamPurge(m store.Message, name string) {
	r := &server.JSApiStreamPurgeResponse{ApiResponse: kind(server.JSApiStreamPurgeResponseType)}
	var req server.JSApiStreamPurgeRequest
	if object(m.Data) {
		if err := parse(m.Data, &req); err != nil {
			r.Error = server.NewJSInvalidJSONError(err)
			a.answer(m, r)
			return
		}
	}
	s, err := a.found(name)
	switch {
	case req.Sequence > 0 && req.Keep > 0:
		r.Error = server.NewJSBadRequestError()
	case err != nil:
		r.Error = err
	case s == nil:
		return
	case s.Config().Sealed:
		r.Error = server.NewJSStreamSealedError()
	case s.Config().DenyPurge:
		r.Error = server.NewJSStreamPurgeFailedError(errors.New("stream purge not permitted"))
	default:
		if s.Replicated() && req.Sequence == 0 && req.Keep == 0 { // the leader says up to where, for replicas that do it later
			req.Sequence = s.Log().Last + 1
		}
		r.Purged = s.Purge(req.Subject, req.Sequence, req.Keep)
		r.Success = true
	}
	a.answer(m, r)
}

// msgGet reads one message: by sequence, the last under a subject, or the next under one.
func (a *API) msgGet(m store.Message, name string) {
	r := &server.JSApiMsgGetResponse{ApiResponse: kind(server.JSApiMsgGetResponseType)}
	var req server.JSApiMsgGetRequest
	if empty(m.Data) {
		r.Error = server.NewJSBadRequestError()
		a.answer(m, r)
		return
	}
	if err := parse(m.Data, &req); err != nil {
		r.Error = server.NewJSInvalidJSONError(err)
		a.answer(m, r)
		return
	}
	s, err := a.found(name)
	switch {
	case req.Batch > 0 || req.MaxBytes > 0, !readable(&req):
		r.Error = server.NewJSBadRequestError()
	case err != nil:
		r.Error = err
	case s == nil:
		r.Error = server.NewJSClusterNotAvailError()
	default:
		if e := read(s, &req); e == nil {
			r.Error = server.NewJSNoMessageFoundError()
		} else {
			r.Message = &server.StoredMsg{Subject: e.Subject, Sequence: e.Seq, Header: e.Header, Data: e.Data, Time: core.When(e.TS)}
			if req.NoHeaders {
				r.Message.Header = nil
			}
		}
	}
	a.answer(m, r)
}

func readable(r *server.JSApiMsgGetRequest) bool {
	return !(r.Seq > 0 && r.LastFor != "" || r.Seq == 0 && r.LastFor == "" && r.NextFor == "" && r.StartTime == nil || r.Seq > 0 && r.StartTime != nil ||
		r.StartTime != nil && r.LastFor != "" || r.LastFor != "" && r.NextFor != "")
}

func read(s *core.Stream, r *server.JSApiMsgGetRequest) *store.Entry {
	seq := r.Seq
	if r.StartTime != nil {
		seq = s.Log().Since(r.StartTime.UnixNano())
	}
	switch {
	case r.NextFor != "":
		return s.Log().NextUnder([]string{r.NextFor}, seq)
	case seq > 0:
		return s.Log().At(seq)
	}
	return s.Log().LastUnder(r.LastFor)
}

func (a *API) msgDelete(m store.Message, name string) {
	r := &server.JSApiMsgDeleteResponse{ApiResponse: kind(server.JSApiMsgDeleteResponseType)}
	var req server.JSApiMsgDeleteRequest
	if empty(m.Data) {
		r.Error = server.NewJSBadRequestError()
		a.answer(m, r)
		return
	}
	if err := parse(m.Data, &req); err != nil {
		r.Error = server.NewJSInvalidJSONError(err)
		a.answer(m, r)
		return
	}
	s, err := a.found(name)
	switch {
	case err != nil:
		r.Error = err
	case s == nil:
		return
	case s.Config().Sealed:
		r.Error = server.NewJSStreamSealedError()
	case s.Config().DenyDelete:
		r.Error = server.NewJSStreamMsgDeleteFailedError(errors.New("message delete not permitted"))
	case s.Drop(req.Seq):
		r.Success = true
	case s.Config().Storage == server.FileStorage && (s.Log().N == 0 || req.Seq < s.Log().First) && req.Seq <= s.Log().Last:
		r.Error = server.NewJSStreamMsgDeleteFailedError(server.ErrStoreMsgNotFound, server.Unless(server.ErrStoreMsgNotFound))
	case s.Config().Storage == server.FileStorage && req.Seq > s.Log().Last:
		r.Error = server.NewJSStreamMsgDeleteFailedError(server.ErrStoreEOF, server.Unless(server.ErrStoreEOF))
	default:
		r.Error = server.NewJSSequenceNotFoundError(req.Seq)
	}
	a.answer(m, r)
}

// page is a part of a list.
func page[T any](all []T, offset, size int) []T {
	if offset = max(offset, 0); offset >= len(all) {
		return nil
	}
	return all[offset:min(offset+size, len(all))]
}

func (a *API) streamNames(m store.Message) {
	r := &server.JSApiStreamNamesResponse{ApiResponse: kind(server.JSApiStreamNamesResponseType)}
	var req server.JSApiStreamNamesRequest
	if err := a.listRequest(m, &req); err != nil {
		r.Error = err
		a.answer(m, r)
		return
	}
	var names []string
	for _, n := range a.c.Names() {
		if req.Subject == "" || slices.ContainsFunc(a.c.Stream(n).Config().Subjects, func(f string) bool { return store.Collide(f, req.Subject) }) {
			names = append(names, n)
		}
	}
	r.ApiPaged = server.ApiPaged{Total: len(names), Offset: min(req.Offset, len(names)), Limit: server.JSApiNamesLimit}
	r.Streams = page(names, req.Offset, server.JSApiNamesLimit)
	a.answer(m, r)
}

func (a *API) listRequest(m store.Message, into any) *server.ApiError {
	if empty(m.Data) {
		return nil
	}
	if err := parse(m.Data, into); err != nil {
		return server.NewJSInvalidJSONError(err)
	}
	return nil
}

// listed is an info as a list has it.
func listed(i *server.StreamInfo) *server.StreamInfo {
	i.Cluster, i.Config.Metadata = nil, store.Static(i.Config.Metadata)
	return i
}

func (a *API) streamList(m store.Message) {
	r := &server.JSApiStreamListResponse{ApiResponse: kind(server.JSApiStreamListResponseType)}
	var req server.JSApiStreamListRequest
	if err := a.listRequest(m, &req); err != nil {
		r.Error = err
		a.answer(m, r)
		return
	}
	list := []*server.StreamInfo{}
	for _, n := range a.c.Names() {
		if s := a.c.Stream(n); req.Subject == "" || slices.ContainsFunc(s.Config().Subjects, func(f string) bool { return store.Collide(f, req.Subject) }) {
			list = append(list, listed(s.Info(false)))
		}
	}
	r.ApiPaged = server.ApiPaged{Total: len(list), Offset: min(req.Offset, len(list)), Limit: server.JSApiListLimit}
	r.Streams = append([]*server.StreamInfo{}, page(list, req.Offset, server.JSApiListLimit)...)
	slices.SortFunc(r.Streams, func(a, b *server.StreamInfo) int { return cmp.Compare(a.Config.Name, b.Config.Name) })
	a.answer(m, r)
}
