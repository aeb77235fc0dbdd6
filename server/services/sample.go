package services

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/service"
	"github.com/bcc94042/instar/server"
	"github.com/bcc94042/instar/server/config"
	"github.com/bcc94042/instar/streams"
	"github.com/bcc94042/instar/streams/publish"
)

// sampleID is the service that dev brings up when it is not there.
const sampleID = "hello"

// usual is where the commands look for a server that nobody has named.
const usual = "http://127.0.0.1:8080"

// sample is that service.
type sample struct {
	h     *server.Host
	state string // how it is, in words
}

// start asks for the sample service in dev. It is on its way when the banner is shown.
func (s *sample) start(ctx context.Context, _ string) error {
	if s.h.Config.Mode != config.Dev || s.image() == "" {
		return nil
	}
	body, err := json.Marshal(service.CreateBody{
		Spec:   service.Spec{Image: s.image(), Env: map[string]string{"GREETING": "Hello from Instar"}},
		Labels: map[string]string{"sample": "true"},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	m, err := s.h.Deps.Commands.AskMsg(ctx, publish.Command{
		Machine: service.Machine.Name, Key: machines.Key("default", "", sampleID), Name: service.CommandCreate, ID: "sample", Actor: "instar dev", Reason: "the sample service", Body: body,
	}, nil)
	if err != nil {
		return fmt.Errorf("cannot ask for the sample service: %w", err)
	}
	var answer machines.Answer
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	s.state = "is on its way to READY"
	if r := answer.Refusal; r != nil && r.Code != machines.CodeExists {
		s.h.Log.Warn("the sample service was refused", "reason", r.Message)
	}
	if answer.Refusal != nil || streams.Replayed(m) {
		s.state = "was here before"
		if e, ok := s.h.Indexes.Get(service.Machine.Name).Get(machines.Key("default", "", sampleID)); ok {
			s.state += " and is " + e.State
		}
	}
	return nil
}

// image is what the sample service of dev runs; none where only a cluster or other workers know what there is.
func (s *sample) image() string {
	switch s.h.Config.Gateway {
	case config.GatewayProcess:
		return "hello"
	case config.GatewaySimulated:
		return "sim:ok"
	}
	return ""
}

// hint is how the sample is, and the commands to try with it.
func (s *sample) hint(url string) (line, commands string) {
	self, image := s.h.Config.Program(), s.image()
	if url != usual {
		commands = "  export INSTAR_SERVER=" + url + "\n"
	}
	if image == "" {
		return "", commands + fmt.Sprintf("  %s service watch\n  %s service create web --image IMAGE\n", self, self)
	}
	line = fmt.Sprintf("  Sample         service %q %s\n", sampleID, s.state)
	if runtime.GOOS != "linux" && s.h.Config.Gateway == config.GatewaySimulated {
		line += "  Services       are simulated: the gateway process needs Linux, and this is " + runtime.GOOS + "\n"
	}
	return line, commands + fmt.Sprintf(`  %[1]s service watch
  %[1]s service get %[2]s
  %[1]s service update %[2]s --image %[3]s --env GREETING=Again --wait
  curl -s %[4]s/v1/services/%[2]s
`, self, sampleID, image, url)
}
