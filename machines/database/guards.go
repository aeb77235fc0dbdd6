package database

import "github.com/bcc94042/instar/machines"

var (
	settled = &guard{Name: "settled", Doc: "its credentials are being rotated", Holds: func(s *step) bool { return s.Data.Phase == "" }}
	entered = &guard{Name: "settled, with a database", Doc: "its credentials are being rotated, or the session has no database of its own: it was finished by hand", Holds: func(s *step) bool {
		return s.Data.Phase == "" && s.Data.Database != nil
	}}
	named = &guard{Name: "named", Doc: "tenant in the body is another one, or its credentials are being rotated", Holds: func(s *step) bool {
		return s.Data.Phase == "" && machines.Body[RetireBody](s).Tenant == s.Data.Request.EnterpriseID
	}}
	itsOwn = &guard{Name: "of this tenant", Doc: "enterpriseId in the body is another tenant than that of the path", Holds: func(s *step) bool {
		_, refused := machines.Body[RequestBody](s).For(s.Entity().Parent)
		return refused == nil
	}}
	turnedBack = &guard{Name: "writes cannot be settled", Holds: func(s *step) bool {
		r := machines.Body[Undone](s).Actions
		return s.Data.Phase == RollingBack && len(r) > 0 && r[0].Action == ActionSettle && !r[0].Done && !r[0].Skipped
	}}
)
