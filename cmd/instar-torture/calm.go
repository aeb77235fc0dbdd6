package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/bcc94042/instar/cmd/instar-torture/internal/rig"
)

const (
	calmInstances = 1000
	calmSample    = time.Minute
)

// calm leaves a server alone with instances that beat and a protection that is held, and looks at what it stores and how
// much it computes: as little at the end as at the start.
func calm(t *torture) error {
	i, err := t.instar("data", "", "--durability", "interval")
	if err != nil {
		return err
	}
	if err := i.Start(""); err != nil {
		return err
	}
	if err := i.Ready(t.ctx, 30*time.Second); err != nil {
		return err
	}
	r, err := t.reader(i.NATSURL())
	if err != nil {
		return err
	}
	for n := range calmInstances {
		if err := calmTell(t.ctx, r, "instance", fmt.Sprintf("default.calm.i-%d", n), "register", `{"nodeAddress":"127.0.0.1:9","check":{"type":"ttl","ttl":"15s"}}`); err != nil {
			return err
		}
	}
	if err := calmTell(t.ctx, r, "preservation", "default.calm.none", "hold", `{}`); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(t.ctx)
	defer stop()
	go beat(ctx, r.NC())
	if !rig.Sleep(t.ctx, 2*calmSample) { // the deadlines of the registrations, a minute each, fire and are outdated
		return t.ctx.Err()
	}
	var stored, spent []float64
	messages, cpu, err := calmLook(t.ctx, r, i.Pid())
	for range t.amount(2, 60) {
		if err != nil {
			return err
		}
		if !rig.Sleep(t.ctx, calmSample) {
			return t.ctx.Err()
		}
		var m, c float64
		if m, c, err = calmLook(t.ctx, r, i.Pid()); err == nil {
			stored, spent = append(stored, m-messages), append(spent, c-cpu)
			messages, cpu = m, c
		}
	}
	if err != nil {
		return err
	}
	for n, m := range stored {
		if m > 5 {
			t.violations++
			t.say("VIOLATION calm: %g messages were stored in minute %d", m, n)
		}
	}
	if first, last := spent[0], spent[len(spent)-1]; last > 1.5*first+1 {
		t.violations++
		t.say("VIOLATION calm: %.1f s of CPU in the first minute, %.1f s in the last one", first, last)
	}
	t.say("%d minutes with %d instances: messages stored per minute %v; CPU %.1f s in the first minute, %.1f s in the last one", len(stored), calmInstances, stored, spent[0], spent[len(spent)-1])
	return nil
}

func calmTell(ctx context.Context, r *rig.Reader, machine, key, command, body string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := r.JS().PublishMsg(ctx, &nats.Msg{
		Subject: "instar.cmd." + machine + "." + key + "." + command, Data: []byte(body),
		Header: nats.Header{nats.MsgIdHdr: {machine + "/" + key + "/" + nuid.Next()}},
	})
	return err
}

// beat is the heartbeat of all instances but the last one, which is never heard.
func beat(ctx context.Context, nc *nats.Conn) {
	for rig.Sleep(ctx, 5*time.Second) {
		for n := range calmInstances - 1 {
			_ = nc.Publish(fmt.Sprintf("instar.hb.default.calm.i-%d", n), nil) // one that is missed is made up for by the next
		}
	}
}

// calmLook is how many messages were stored so far, and how many seconds of CPU a process has spent.
func calmLook(ctx context.Context, r *rig.Reader, pid int) (messages, cpu float64, err error) {
	for _, name := range []string{"COMMANDS", "EVENTS", "EFFECTS", "KV_instances", "KV_preservations", "KV_services"} {
		s, err := r.JS().Stream(ctx, name)
		if err != nil {
			return 0, 0, fmt.Errorf("cannot look at %s: %w", name, err)
		}
		messages += float64(s.CachedInfo().State.LastSeq)
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	for _, ticks := range fields[11:13] { // user and system time
		n, err := strconv.ParseFloat(ticks, 64)
		if err != nil {
			return 0, 0, err
		}
		cpu += n / 100
	}
	return messages, cpu, nil
}
