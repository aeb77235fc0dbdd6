package platform

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/bcc94042/instar/kv/index"
	"github.com/bcc94042/instar/machines"
	domains "github.com/bcc94042/instar/machines/domain"
	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform"
	"github.com/bcc94042/instar/streams/publish"
)

// bindings are custom domains: entities of machines/domain, whose ids are made of the names.
type bindings struct {
	commands *publish.Commands
	domains  *index.Index
}

const longestID = 63

// id is a DNS label for a name. Where two could have the same one, it has a hash.
func id(host string) string {
	label := strings.ReplaceAll(host, ".", "-")
	if !strings.Contains(host, "-") && len(label) <= longestID {
		return label
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(host)) // never fails
	return fmt.Sprintf("%s-%08x", strings.TrimRight(label[:min(len(label), longestID-9)], "-"), h.Sum32())
}

// Point binds a name, or sends its requests elsewhere. One that is removed, or on its way to it, stays so unless it is to be bound anew.
func (b *bindings) Point(ctx context.Context, to platform.Binding) (string, error) {
	key := machines.Key(to.Namespace, to.Tenant, id(to.Host))
	bind, err := json.Marshal(domains.BindBody{Host: to.Host, Route: to.Route})
	if err != nil {
		return "", providers.Errorf(providers.Internal, "cannot ask for %s: %v", to.Host, err)
	}
	retarget, err := json.Marshal(domains.RetargetBody{Route: to.Route})
	if err != nil {
		return "", providers.Errorf(providers.Internal, "cannot ask for %s: %v", to.Host, err)
	}
	tries := []publish.Command{{Name: domains.CommandRetarget, Body: retarget}}
	if to.Anew {
		tries = append(tries, publish.Command{Name: domains.CommandBind, Body: bind})
		if item, known := b.domains.Get(key); !known || item.State == domains.Removed {
			slices.Reverse(tries)
		}
	}
	var refused *machines.Refusal
	for _, c := range tries {
		if refused, err = b.ask(ctx, key, c); err != nil || refused == nil {
			return key, err
		}
	}
	if !to.Anew && slices.Contains([]string{machines.CodeTransition, machines.CodeNotFound}, refused.Code) {
		return key, nil
	}
	return key, providers.Errorf(providers.Unavailable, "the domain %s of %s cannot be bound now: %s", to.Host, to.Tenant, refused.Message)
}

// Remove takes a name away. A refusal says that there is none.
func (b *bindings) Remove(ctx context.Context, of platform.Binding) error {
	_, err := b.ask(ctx, machines.Key(of.Namespace, of.Tenant, id(of.Host)), publish.Command{Name: domains.CommandRemove})
	return err
}

func (b *bindings) ask(ctx context.Context, key string, c publish.Command) (*machines.Refusal, error) {
	c.Machine, c.Key, c.Actor = domains.Machine.Name, key, "provider"
	m, err := b.commands.AskMsg(ctx, c, nil)
	var a machines.Answer
	if err == nil {
		err = json.Unmarshal(m.Data, &a)
	}
	if err != nil {
		return nil, providers.Errorf(providers.Unavailable, "cannot %s the domain %s: %v", c.Name, key, err)
	}
	return a.Refusal, nil
}
