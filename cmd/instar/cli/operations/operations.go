// Package operations is the command about what a 202 leads to: a command that was stored, or a batch.
package operations

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/internal/client"
	"github.com/bcc94042/instar/cmd/instar/internal/output"
)

// Command is "instar op".
func Command(p *command.Program) *cobra.Command {
	g := command.ClientFlags(command.Group("op", "Operations: the progress of a command or a batch"))
	g.GroupID = command.GroupLook
	wait := &cobra.Command{
		Use: "wait OPERATION", Short: "Wait until an operation is done; exit code 7 if it failed, 4 if commands of a batch were refused", Args: command.Arguments("OPERATION"), RunE: p.Asking(opWait),
		Example: "  instar op wait service.default.web.k1 --timeout 5m",
	}
	wait.Flags().Duration("timeout", 30*time.Second, "at most this long; 0 is without end")
	g.AddCommand(&cobra.Command{Use: "get OPERATION", Short: "Show an operation; its name is in the answer 202 and its Location", Args: command.Arguments("OPERATION"), RunE: p.Asking(opGet)}, wait,
		&cobra.Command{Use: "cancel OPERATION", Short: "Stop a batch from sending further commands", Args: command.Arguments("OPERATION"), RunE: p.Asking(opCancel)})
	return g
}

// operation is one, as the command line shows it.
type operation struct {
	Name     string `json:"name"`
	Kind     string `json:"kind"`
	Done     bool   `json:"done"`
	Metadata struct {
		Step     string `json:"step"`
		Progress *struct {
			Matched, Applied, Unchanged, Stored, Refused, Failed int
			Failures                                             []failure
		} `json:"progress"`
	} `json:"metadata"`
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
	Response struct {
		Outcome string `json:"outcome"`
		Version uint64 `json:"version"`
	} `json:"response"`

	raw json.RawMessage
}

// failure is an entity whose command was refused, or failed.
type failure struct{ Key, Code, Detail string }

// mostReasons are told of a batch; the same reason again and again says nothing new.
const mostReasons = 5

// reasons are why some commands of a batch were not carried out, for people.
func (op *operation) reasons() string {
	if op.Metadata.Progress == nil {
		return ""
	}
	all := op.Metadata.Progress.Failures
	var b strings.Builder
	for _, f := range all[:min(len(all), mostReasons)] {
		fmt.Fprintf(&b, "  %s: %s: %s\n", f.Key, f.Code, output.Line(f.Detail))
	}
	if len(all) > mostReasons {
		fmt.Fprintf(&b, "  and more: instar op get %s -o json has the first 100\n", op.Name)
	}
	return b.String()
}

// refused is an error where not all commands of a batch were carried out.
func (op *operation) refused() error {
	p := op.Metadata.Progress
	if p == nil || p.Refused+p.Failed == 0 {
		return nil
	}
	return &command.Error{Code: command.ExitConflict, Err: fmt.Errorf("%s: %d of %d commands were refused or failed", op.Name, p.Refused+p.Failed, p.Matched)}
}

func askOperation(s *command.Session, method, name, below string, wait time.Duration) (*operation, error) {
	name = strings.TrimPrefix(name, "/v1/operations/")
	r := client.Request{Method: method, Path: "/v1/operations/" + url.PathEscape(name) + below, Header: http.Header{}}
	if wait > 0 {
		r.Header.Set("Prefer", fmt.Sprintf("wait=%d", int((wait+time.Second-1)/time.Second)))
	}
	resp, err := s.Do(s.Ctx, r)
	if err != nil {
		return nil, err
	}
	op := &operation{raw: resp.Body}
	if err := json.Unmarshal(resp.Body, op); err != nil {
		return nil, fmt.Errorf("the server's operation is not as expected: %w", err)
	}
	return op, nil
}

// tell writes an operation.
func tellOperation(s *command.Session, op *operation) error {
	switch {
	case s.Format == output.Name:
		_, err := fmt.Fprintln(s.Out, op.Name)
		return err
	case !s.Format.Human():
		return s.Format.Value(s.Out, op.raw)
	}
	words := []string{op.Metadata.Step}
	if p := op.Metadata.Progress; p != nil {
		words = append(words, fmt.Sprintf("%d matched: %d applied, %d unchanged, %d stored, %d refused, %d failed", p.Matched, p.Applied, p.Unchanged, p.Stored, p.Refused, p.Failed))
	} else if op.Response.Outcome != "" {
		words = append(words, op.Response.Outcome, fmt.Sprintf("version %d", op.Response.Version))
	}
	if op.Error != nil {
		words = append(words, op.Error.Code+": "+output.Line(op.Error.Message))
	}
	state := "under way"
	if op.Done {
		state = "done"
	}
	_, err := fmt.Fprintf(s.Out, "%s: %s, %s\n%s", op.Name, state, strings.Join(words, ", "), op.reasons())
	return err
}

func opGet(s *command.Session, _ *cobra.Command, args []string) error {
	op, err := askOperation(s, http.MethodGet, args[0], "", 0)
	if err != nil {
		return err
	}
	return tellOperation(s, op)
}

func opCancel(s *command.Session, _ *cobra.Command, args []string) error {
	op, err := askOperation(s, http.MethodPost, args[0], "/cancel", 0)
	if err != nil {
		return err
	}
	return tellOperation(s, op)
}

const (
	mostAtOnce = 20 * time.Second       // that one request waits
	pollWait   = 200 * time.Millisecond // between two of them
)

func opWait(s *command.Session, cmd *cobra.Command, args []string) error {
	most, _ := cmd.Flags().GetDuration("timeout") // declared above
	ctx, stop := command.ContextFor(s.Ctx, most)
	defer stop()
	for {
		left := mostAtOnce
		if end, bounded := ctx.Deadline(); bounded {
			left = min(left, time.Until(end))
		}
		op, err := askOperation(s, http.MethodGet, args[0], "", max(left, 0))
		switch {
		case err != nil:
			return err
		case op.Done && op.Error != nil:
			return errors.Join(tellOperation(s, op), &command.Error{Code: command.ExitFailed, Err: fmt.Errorf("%s ended: %s: %s", op.Name, op.Error.Code, op.Error.Message)})
		case op.Done:
			return errors.Join(tellOperation(s, op), op.refused())
		}
		select { // a batch that has stalled is answered at once
		case <-time.After(pollWait):
		case <-ctx.Done():
			return &command.Error{Code: command.ExitTimeout, Err: fmt.Errorf("%s is still %s after %s; the server goes on with it", op.Name, op.Metadata.Step, most), Try: "instar op wait " + op.Name}
		}
	}
}
