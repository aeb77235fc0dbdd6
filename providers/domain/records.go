package domain

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	machine "github.com/bcc94042/instar/machines/domain"
)

// Resolver asks name servers; [net.Resolver] is one.
type Resolver interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Records judges the DNS records of names.
type Records struct {
	Resolver Resolver
	// Points are where names must lead: names and addresses of the proxy. Where there are none, it is not checked.
	Points []string
}

// Wanted are the records that a name needs: its proof, and where it leads.
func (r *Records) Wanted(host, token string) []machine.Record {
	wanted := []machine.Record{machine.Proof(host, token)}
	for _, p := range r.Points {
		switch addr, err := netip.ParseAddr(p); {
		case err != nil: // one alias is all that a name can have, and enough
			return append(wanted[:1], machine.Record{Name: host, Type: "CNAME", Value: p})
		case addr.Is4():
			wanted = append(wanted, machine.Record{Name: host, Type: "A", Value: p})
		default:
			wanted = append(wanted, machine.Record{Name: host, Type: "AAAA", Value: p})
		}
	}
	return wanted
}

// answerWithin is how long name servers are waited for. Those that do not answer must not hold up the looks at other names.
const answerWithin = 3 * time.Second

// Lacks reports whether the name servers say that the proof of a token is not there; that they do not answer says nothing.
func (r *Records) Lacks(ctx context.Context, host, token string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	proof := machine.Proof(host, token)
	texts, err := r.Resolver.LookupTXT(ctx, proof.Name+".")
	return !unanswered(err) && !holds(texts, proof)
}

func holds(texts []string, proof machine.Record) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return strings.TrimSpace(s) == proof.Value })
}

// Problem is what is wrong with the records of a name, in words that stay the same for as long as it does; empty is nothing. It fails only with its context.
func (r *Records) Problem(ctx context.Context, host, token string) (string, error) {
	problem, err := r.problem(ctx, host, token)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return problem, err
}

func (r *Records) problem(whole context.Context, host, token string) (string, error) {
	ctx, cancel := context.WithTimeout(whole, answerWithin)
	defer cancel()
	proof := machine.Proof(host, token)
	texts, err := r.Resolver.LookupTXT(ctx, proof.Name+".") // with a dot no search list of this host is tried
	switch {
	case unanswered(err):
		return fmt.Sprintf("the name servers of %s do not answer", proof.Name), nil
	case err != nil || len(texts) == 0:
		return proof.Name + " has no TXT record", nil
	case !holds(texts, proof):
		return fmt.Sprintf("no TXT record of %s is %s", proof.Name, proof.Value), nil
	}
	return r.leads(ctx, host)
}

// Leads is why a name does not lead to the proxy, in words that stay the same for as long as it does; empty if it does, or where no points are set. It fails only with its context.
func (r *Records) Leads(ctx context.Context, host string) (string, error) {
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	problem, err := r.leads(within, host)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	return problem, err
}

// leads is why a name does not lead to the proxy: every address of it has to be one of the proxy, or some requests go elsewhere.
func (r *Records) leads(ctx context.Context, host string) (string, error) {
	if len(r.Points) == 0 {
		return "", nil
	}
	at, err := r.Resolver.LookupNetIP(ctx, "ip", host+".")
	switch {
	case unanswered(err):
		return fmt.Sprintf("the name servers of %s do not answer", host), nil
	case err != nil || len(at) == 0:
		return fmt.Sprintf("%s leads nowhere; it has to lead to %s", host, strings.Join(r.Points, ", ")), nil
	}
	var own []netip.Addr
	for _, p := range r.Points {
		if addr, err := netip.ParseAddr(p); err == nil {
			own = append(own, addr.Unmap())
			continue
		}
		list, err := r.Resolver.LookupNetIP(ctx, "ip", p+".")
		if err != nil {
			return fmt.Sprintf("the proxy's own name %s leads nowhere; whoever runs the server has to mend that", p), nil
		}
		for _, addr := range list {
			own = append(own, addr.Unmap())
		}
	}
	slices.SortFunc(at, netip.Addr.Compare)
	for _, addr := range at {
		if !slices.Contains(own, addr.Unmap()) {
			return fmt.Sprintf("%s leads to %s, which is not the proxy; it has to lead to %s", host, addr.Unmap(), strings.Join(r.Points, ", ")), nil
		}
	}
	return "", nil
}

// unanswered reports whether an error says nothing about a name.
func unanswered(err error) bool {
	var d *net.DNSError
	return err != nil && (!errors.As(err, &d) || !d.IsNotFound)
}
