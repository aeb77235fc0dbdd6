package database

import (
	"slices"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/session"
)

var (
	entered = &guard{Name: "settled, with a database", Doc: "its credentials are being rotated, or the session has no database of its own: it was finished by hand", Holds: func(s *step) bool {
		return s.Data.Phase == "" && s.Data.Database != nil
	}}
	leadsBack = &guard{Name: "settled, with a database or discardWrites", Doc: "its credentials are being rotated, or the session has made no database: it was finished by hand. Send the tenant back by hand; revert with discardWrites ends the session then", Holds: func(s *step) bool {
		made := slices.ContainsFunc(s.Data.Ledger, func(e Entry) bool { return e.Kind == KindDatabase && e.State != session.Undone })
		return s.Data.Phase == "" && (made || machines.Body[RevertBody](s).DiscardWrites)
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
