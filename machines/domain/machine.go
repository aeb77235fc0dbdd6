package domain

import (
	"time"

	"github.com/bcc94042/instar/machines"
)

// States.
const (
	PendingDNS = "pending_dns"
	Verifying  = "verifying"
	Issuing    = "issuing"
	Active     = "active"
	Failed     = "failed"
	Expired    = "expired"
	Removing   = "removing"
	Removed    = "removed"
)

// Inputs: commands of users, reports of the provider and its observer, timeouts.
const (
	CommandBind     = "bind"
	CommandRetarget = "retarget"
	CommandRetry    = "retry"
	CommandRemove   = "remove"

	ReportFound        = "found"
	ReportMissing      = "missing"
	ReportLookFailed   = "look-failed"
	ReportVerified     = "verified"
	ReportVerifyFailed = "verify-failed"
	ReportIssued       = "issued"
	ReportIssueFailed  = "issue-failed"
	ReportRouted       = "routed"
	ReportRouteFailed  = "route-failed"
	ReportRenewed      = "renewed"
	ReportUnrenewed    = "not-renewed"
	ReportLapsed       = "lapsed"
	ReportUnrouted     = "unrouted"
	ReportTaken        = "taken"
	ReportRemoved      = "removed"
	ReportRemoveFailed = "remove-failed"

	TimeoutDNS    = "dns-deadline"
	TimeoutVerify = "verify-deadline"
	TimeoutIssue  = "issue-deadline"
)

// Effects.
const (
	EffectLook   = "look"
	EffectVerify = "verify"
	EffectIssue  = "issue"
	EffectRoute  = "route"
	EffectRemove = "remove"
)

// Events.
const (
	EventBound        = "domain.bound"
	EventRetargeted   = "domain.retargeted"
	EventMissing      = "domain.dns.missing"
	EventFound        = "domain.dns.found"
	EventVerified     = "domain.verified"
	EventIssued       = "domain.certificate.issued"
	EventActive       = "domain.active"
	EventRouted       = "domain.routed"
	EventUnrouted     = "domain.route.lost"
	EventRouteFailed  = "domain.route.failed"
	EventRenewed      = "domain.certificate.renewed"
	EventUnrenewed    = "domain.certificate.renewal_failed"
	EventFailed       = "domain.failed"
	EventExpired      = "domain.expired"
	EventRetried      = "domain.retried"
	EventRemoving     = "domain.removing"
	EventRemoved      = "domain.removed"
	EventRemoveFailed = "domain.remove.failed"
)

// The times that states may last.
const (
	DNSFor    = 7 * 24 * time.Hour // until whoever owns the name has edited its records
	VerifyFor = time.Hour
	IssueFor  = 24 * time.Hour // a certificate authority may ask for waits of hours
)

type (
	step  = machines.Tx[Data]
	guard = machines.Guard[Data]
)

// Machine is the lifecycle of a domain.
var Machine = machines.Define(machines.Definition[Data]{
	Name: "domain", Plural: "domains", Parent: "tenant", Doc: "A domain name of a tenant: its proof, its certificate, and where its requests go.",
	States: states, Inputs: inputs, Effects: effects, Events: events, Columns: columns, Edges: table,
})

func only(states ...string) []string { return states }

var (
	unserved = only(PendingDNS, Verifying, Issuing, Failed, Expired)
	bound    = only(PendingDNS, Verifying, Issuing, Active, Failed, Expired)
)

var table = []machines.Edge[Data]{
	{From: only(machines.None, Removed), On: CommandBind, To: PendingDNS, Do: bind, Emit: only(EventBound)},
	{From: bound, On: CommandRetarget, If: sameRoute, To: machines.Same, Noop: true},
	{From: only(Issuing), On: CommandRetarget, If: routing, To: machines.Same, Do: retarget, Emit: only(EventRetargeted), Effects: only(EffectRoute)},
	{From: unserved, On: CommandRetarget, To: machines.Same, Do: retarget, Emit: only(EventRetargeted)}, // no wait that a certificate authority has asked for ends by it
	{From: only(Active), On: CommandRetarget, To: machines.Same, Reenter: true, Do: retarget, Emit: only(EventRetargeted), Effects: only(EffectRoute)},
	{From: only(Failed, Expired), On: CommandRetry, To: PendingDNS, Do: again, Emit: only(EventRetried)},
	{From: only(PendingDNS), On: CommandRetry, To: machines.Same, Reenter: true, Do: again, Emit: only(EventRetried)}, // it is looked at at once
	{From: bound, On: CommandRemove, To: Removing, Do: forget, Emit: only(EventRemoving), Effects: only(EffectRemove)},
	{From: only(Removing), On: CommandRemove, If: stuck, To: machines.Same, Reenter: true, Do: forget, Emit: only(EventRemoving), Effects: only(EffectRemove)},
	{From: only(Removing), On: CommandRemove, To: machines.Same, Noop: true},

	{From: only(PendingDNS), On: ReportMissing, If: sameProblem, To: machines.Same, Noop: true},
	{From: only(PendingDNS), On: ReportMissing, To: machines.Same, Do: missing, Emit: only(EventMissing)},
	{From: only(PendingDNS), On: ReportFound, To: Verifying, Do: found, Emit: only(EventFound), Effects: only(EffectVerify)},
	{From: only(PendingDNS, Active), On: ReportLookFailed, To: machines.Same, Noop: true},
	{From: only(PendingDNS), On: TimeoutDNS, To: Expired, Do: expire, Emit: only(EventExpired)},

	{From: only(Verifying), On: ReportVerified, To: Issuing, Do: forget, Emit: only(EventVerified), Effects: only(EffectIssue)},
	{From: only(Verifying), On: ReportVerifyFailed, If: recordsWent, To: PendingDNS, Do: unproven, Emit: only(EventMissing)},
	{From: only(Verifying), On: ReportVerifyFailed, To: Failed, Do: fail, Emit: only(EventFailed)},
	{From: only(Verifying), On: TimeoutVerify, To: Failed, Do: late, Emit: only(EventFailed)},

	{From: only(Issuing), On: ReportIssued, To: machines.Same, Do: issued, Emit: only(EventIssued), Effects: only(EffectRoute)},
	{From: only(Issuing), On: ReportRouted, To: Active, Do: forget, Emit: only(EventActive)},
	{From: only(Issuing), On: ReportRouteFailed, To: machines.Same, Do: note(EventRouteFailed), Emit: only(EventRouteFailed), Effects: only(EffectIssue)}, // which finds whether the name is its own still
	{From: only(Issuing), On: ReportIssueFailed, To: Failed, Do: closing(fail), Emit: only(EventFailed), Effects: only(EffectRoute)},
	{From: only(Issuing), On: TimeoutIssue, To: Failed, Do: closing(late), Emit: only(EventFailed), Effects: only(EffectRoute)},

	{From: only(Active), On: ReportRouted, To: machines.Same, Do: forget, Emit: only(EventRouted)},
	{From: only(Active), On: ReportUnrouted, To: machines.Same, Reenter: true, Emit: only(EventUnrouted), Effects: only(EffectRoute)},
	{From: only(Active), On: ReportTaken, To: Failed, Do: fail, Emit: only(EventFailed)},
	{From: only(Active), On: ReportRouteFailed, To: machines.Same, Do: note(EventRouteFailed), Emit: only(EventRouteFailed)},
	{From: only(Active), On: ReportRenewed, If: sameCertificate, To: machines.Same, Noop: true},
	{From: only(Active), On: ReportRenewed, To: machines.Same, Do: issued, Emit: only(EventRenewed)},
	{From: only(Active), On: ReportUnrenewed, If: sameFailure, To: machines.Same, Noop: true},
	{From: only(Active), On: ReportUnrenewed, To: machines.Same, Do: unrenewed, Emit: only(EventUnrenewed)},
	{From: only(Active), On: ReportLapsed, To: Expired, Do: lapse, Emit: only(EventExpired), Effects: only(EffectRoute)},
	{From: only(Expired, Failed, PendingDNS), On: ReportRouted, To: machines.Same, Noop: true},
	{From: only(Expired, Failed, PendingDNS), On: ReportRouteFailed, To: machines.Same, Do: note(EventRouteFailed), Emit: only(EventRouteFailed)},

	{From: only(Removing), On: ReportRemoved, To: Removed, Do: removed, Emit: only(EventRemoved)},
	{From: only(Removing), On: ReportRemoveFailed, To: machines.Same, Do: note(EventRemoveFailed), Emit: only(EventRemoveFailed)},
}

func lasting(d time.Duration) func(*Data) time.Duration {
	return func(*Data) time.Duration { return d }
}

var states = []machines.State[Data]{
	{Name: PendingDNS, Doc: "Its DNS records are awaited.", Timeout: &machines.Timeout[Data]{Input: TimeoutDNS, After: lasting(DNSFor)}, Poll: &machines.Poll{Every: 2 * time.Second, Effect: EffectLook}},
	{Name: Verifying, Doc: "Its records are being verified, and the name is being claimed.", Timeout: &machines.Timeout[Data]{Input: TimeoutVerify, After: lasting(VerifyFor)}},
	{Name: Issuing, Doc: "A certificate is being issued. The name is served as soon as it is there.", Timeout: &machines.Timeout[Data]{Input: TimeoutIssue, After: lasting(IssueFor)}},
	{Name: Active, Doc: "Its requests are served over TLS; the certificate is renewed in time.", Poll: &machines.Poll{Every: 15 * time.Second, Effect: EffectLook}},
	{Name: Failed, Doc: "It could not be verified, or no certificate was issued; retry begins again.", Failed: true},
	{Name: Expired, Doc: "Its records never came, or its certificate ended before it was renewed; retry begins again.", Failed: true},
	{Name: Removing, Doc: "It is being taken from the proxy.", Transitional: true},
	{Name: Removed, Doc: "It is gone; bind begins a new life of the name.", Terminal: true},
}

var effects = []machines.Effect[Data]{
	{Name: EffectLook, Doc: "Look at the DNS records, or at the certificate.", Done: ReportFound, Failed: ReportLookFailed, Payload: payload, Task: Task{}, Retry: machines.Retry{Attempts: 1}, Looks: true},
	{Name: EffectVerify, Doc: "Verify the records, and claim the name.", Done: ReportVerified, Failed: ReportVerifyFailed, Payload: payload, Task: Task{}, Retry: machines.Retry{Attempts: 4, Base: 5 * time.Second, Cap: time.Minute}},
	{Name: EffectIssue, Doc: "Have a certificate issued.", Done: ReportIssued, Failed: ReportIssueFailed, Payload: payload, Task: Task{}, Retry: machines.Retry{Attempts: 100, Base: 10 * time.Second, Cap: 15 * time.Minute}, Timeout: 15 * time.Minute},
	{Name: EffectRoute, Doc: "Send the requests of the name where its targets are, or nowhere.", Done: ReportRouted, Failed: ReportRouteFailed, Payload: payload, Task: Task{}, Retry: machines.Retry{Attempts: 10}},
	{Name: EffectRemove, Doc: "Take the name from the proxy, and forget its certificate.", Done: ReportRemoved, Failed: ReportRemoveFailed, Payload: payload, Task: Task{}, Retry: machines.Retry{Attempts: 10}},
}

var inputs = []machines.Command{
	{Name: CommandBind, Doc: "Bind a domain name to targets.", Body: BindBody{}, Birth: true, Replaces: true},
	{Name: CommandRetarget, Doc: "Send its requests elsewhere, or with other weights.", Body: RetargetBody{}, Replaces: true},
	{Name: CommandRetry, Doc: "Begin again with the records; while they are awaited, look at once."},
	{Name: CommandRemove, Doc: "Serve the name no more.", Destructive: true},
	{Name: ReportFound, Doc: "The records are there.", Body: Records{}, Report: true},
	{Name: ReportMissing, Doc: "Records are missing, or lead elsewhere.", Body: Records{}, Report: true},
	{Name: ReportLookFailed, Doc: "It could not be looked at.", Body: machines.Failure{}, Report: true},
	{Name: ReportVerified, Doc: "The name is proven, and claimed.", Report: true},
	{Name: ReportVerifyFailed, Doc: "The name could not be proven, or is another's.", Body: machines.Failure{}, Report: true},
	{Name: ReportIssued, Doc: "A certificate was issued.", Body: Certificate{}, Report: true},
	{Name: ReportIssueFailed, Doc: "No certificate was issued.", Body: machines.Failure{}, Report: true},
	{Name: ReportRouted, Doc: "The proxy has been told where its requests go.", Report: true},
	{Name: ReportRouteFailed, Doc: "The proxy could not be told.", Body: machines.Failure{}, Report: true},
	{Name: ReportRenewed, Doc: "The certificate is another one than before.", Body: Certificate{}, Report: true},
	{Name: ReportUnrenewed, Doc: "The certificate could not be renewed yet.", Body: Trouble{}, Report: true},
	{Name: ReportLapsed, Doc: "The certificate has ended.", Body: Trouble{}, Report: true},
	{Name: ReportUnrouted, Doc: "The proxy has lost where its requests go, or sends them elsewhere.", Report: true},
	{Name: ReportTaken, Doc: "The name is another's now, who has proven it while the own proof was gone.", Body: machines.Failure{}, Report: true},
	{Name: ReportRemoved, Doc: "The name is taken from the proxy.", Report: true},
	{Name: ReportRemoveFailed, Doc: "It could not be taken from the proxy.", Body: machines.Failure{}, Report: true},
	{Name: TimeoutDNS, Doc: "The records did not come in time.", Report: true},
	{Name: TimeoutVerify, Doc: "It was not verified in time.", Report: true},
	{Name: TimeoutIssue, Doc: "No certificate was issued in time.", Report: true},
}

var events = []machines.EventType{
	{Name: EventBound, Class: machines.ClassResource, Doc: "A name was bound, and which records it needs."},
	{Name: EventRetargeted, Class: machines.ClassResource, Doc: "Its requests are to go elsewhere."},
	{Name: EventMissing, Class: machines.ClassProgress, Doc: "Which records are missing, where that has changed."},
	{Name: EventFound, Class: machines.ClassProgress, Doc: "Its records are there."},
	{Name: EventVerified, Class: machines.ClassState, Doc: "The name is proven, and is the tenant's."},
	{Name: EventIssued, Class: machines.ClassResource, Doc: "A certificate was issued."},
	{Name: EventActive, Class: machines.ClassState, Doc: "Its requests are served."},
	{Name: EventRouted, Class: machines.ClassResource, Doc: "Its requests go to other targets."},
	{Name: EventUnrouted, Class: machines.ClassError, Doc: "The proxy had lost where its requests go, or sent them elsewhere; it is told again."},
	{Name: EventRouteFailed, Class: machines.ClassError, Doc: "The proxy could not be told of its targets."},
	{Name: EventRenewed, Class: machines.ClassResource, Doc: "The certificate was renewed."},
	{Name: EventUnrenewed, Class: machines.ClassError, Doc: "The certificate could not be renewed, and why."},
	{Name: EventFailed, Class: machines.ClassError, Doc: "It failed, from which state, and why."},
	{Name: EventExpired, Class: machines.ClassError, Doc: "It is not served, for its records or its certificate."},
	{Name: EventRetried, Class: machines.ClassState, Doc: "It begins again with the records."},
	{Name: EventRemoving, Class: machines.ClassState, Doc: "It is to be served no more."},
	{Name: EventRemoved, Class: machines.ClassState, Doc: "It is gone."},
	{Name: EventRemoveFailed, Class: machines.ClassError, Doc: "It could not be taken from the proxy."},
}

var columns = []machines.Column{
	{Title: "HOST", Path: "data.host"},
	{Title: "CERTIFICATE UNTIL", Path: "data.certificate.notAfter"},
	{Title: "PROBLEM", Path: "data.problem"},
}
