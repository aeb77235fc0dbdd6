package cli

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/cmd/instar/cli/entities"
	"github.com/bcc94042/instar/machines"
	"github.com/bcc94042/instar/machines/all"
	"github.com/bcc94042/instar/machines/diagram"
	"github.com/bcc94042/instar/server/builtin"
	"github.com/bcc94042/instar/server/config"
)

// moving are times as the API writes them: some depend on when the test runs.
var moving = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

var update = flag.Bool("update", false, "write the golden files anew")

// golden runs a command line and compares everything that can be seen of it.
func golden(t *testing.T, f *fake, file string, stdin string, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := execute(append(args, "--server", f.URL), strings.NewReader(stdin), &out, &errs)
	var b strings.Builder
	fmt.Fprintf(&b, "$ instar %s\nexit %d\n", strings.Join(args, " "), code)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, part := range []struct{ title, text string }{{"stdout", out.String()}, {"stderr", errs.String()}, {"requests", strings.Join(f.requests, "\n")}} {
		if text := strings.TrimRight(part.text, "\n"); text != "" {
			fmt.Fprintf(&b, "--- %s\n%s\n", part.title, text)
		}
	}
	got := moving.ReplaceAllString(b.String(), "<time>")
	got = strings.NewReplacer(f.URL, "http://server", strings.TrimPrefix(f.URL, "http://"), "server").Replace(got)
	path := filepath.Join("testdata", file+".txt")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o600))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		file  string
		stdin string
		args  string
	}{
		{file: "create", args: "service create web --image hello --env A=1 --env B=x=y --probe-path /health --label team=web --reason because -n prod --token t0ken"},
		{file: "create-json", args: "service create web --image hello -o json"},
		{file: "create-file", stdin: "spec:\n  image: hello\n  env: {A: '1'}\npolicy: {drift: report}\n", args: "service create web -f - --set spec.env.B.C=2 --set spec.port=80 --env D=3 --drift reapply"},
		{file: "create-wait", args: "service create web --image hello --wait"},
		{file: "create-wait-json", args: "service create web --image hello --wait=10s -o json"},
		{file: "create-failed", args: "service create bad --image hello --wait"},
		{file: "create-timeout", args: "service create slow --image hello --wait=500ms"},
		{file: "create-async", args: "service create web --image hello --async --idempotency-key k1"},
		{file: "create-late", args: "service create late --image hello"},
		{file: "create-broken", args: "service create broken --image hello --idempotency-key k1"},
		{file: "create-down", args: "service create down --image hello --idempotency-key k1"},
		{file: "delete", args: "service delete web --if-match 42 -o name"},
		{file: "refused", args: "service update deleting --image hello"},
		{file: "replace", args: "repository configure shop --weight 3 --ref v1 --analyses sloc"},
		{file: "replace-key", args: "repository configure shop --url= --idempotency-key k1 -n prod"},
		{file: "replace-nothing", args: "repository configure shop"},
		{file: "replace-file", stdin: "weight: 3", args: "repository configure shop -f - --if-match 41"},
		{file: "replace-empty", args: "task schedule shop/lint --cron="},
		{file: "exists", args: "service create ready --image hello"},
		{file: "exists-another", args: "service create claimed --image hello"},
		{file: "missing-another", args: "service create orphan --image hello"},
		{file: "invalid", args: "service create invalid"},
		{file: "guarded", args: "service purge guarded -y"},
		{file: "dead", args: "service refresh dead"},
		{file: "unknown-path", args: "service create web --set spec.imag=hello"},
		{file: "wrong-type", args: "service create web --set spec.port=eighty"},
		{file: "get", args: "service get web"},
		{file: "get-failed", args: "service get bad"},
		{file: "get-yaml", args: "service status web -o yaml"},
		{file: "get-missing", args: "service get none"},
		{file: "ls", args: "service ls"},
		{file: "ls-list", args: "service list"},
		{file: "ls-wide", args: "services ls -A -o wide --state READY,FAILED -l team=web"},
		{file: "ls-name", args: "service ls -o name --limit 2"},
		{file: "ls-none", args: "service ls -l team=none"},
		{file: "ls-state", args: "service ls --state RUNNING"},
		{file: "events", args: "service events web"},
		{file: "events-jsonl", args: "service events web -o jsonl --limit 2 --type service.ready"},
		{file: "status", args: "service status web"},
		{file: "revisions", args: "service revisions web"},
		{file: "watch", args: "service watch"},
		{file: "watch-jsonl", args: "service watch -o jsonl --state CREATING"},
		{file: "wait", args: "service wait web --for state=READY"},
		{file: "wait-condition", args: "service wait web --for condition=Available -o name"},
		{file: "wait-failed", args: "service wait bad --for state=READY"},
		{file: "wait-timeout", args: "service wait slow --timeout 500ms"},
		{file: "wait-missing", args: "service wait none"},
		{file: "wait-unknown", args: "service wait web --for state=UP"},
		{file: "entity-send", args: "entity send service create web --set spec.image=hello"},
		{file: "entity-get", args: "entity get services web -o name"},
		{file: "entity-unknown", args: "entity get nothing web"},
		{file: "entity-send-there", args: "entity send lamp light desk --set level=3 --set room.name=hall --idempotency-key k"},
		{file: "entity-get-there", args: "entity get lamps desk"},
		{file: "entity-send-unknown-there", args: "entity send lamp dim desk"},
		{file: "machine-ls", args: "machine ls -o name"},
		{file: "machine-show", args: "machine show lamps"},
		{file: "machine-unknown", args: "machine show door"},
		{file: "machine-counts", args: "machine counts service"},
		{file: "dlq-ls", args: "dlq ls"},
		{file: "dlq-show", args: "dlq show 7"},
		{file: "dlq-redrive", args: "dlq redrive 7 9"},
		{file: "dlq-edit", args: "dlq edit 7 --body testdata/body.json --reason typo"},
		{file: "dlq-drop", args: "dlq drop 7 9 --reason unwanted"},
		{file: "dlq-redrive-all", args: "dlq redrive --all --machine service -o json"},
		{file: "openapi", args: "openapi"},
	} {
		t.Run(tc.file, func(t *testing.T) {
			t.Parallel()
			golden(t, newFake(t), tc.file, tc.stdin, strings.Fields(tc.args)...)
		})
	}
}

func exitOf1(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, nobody.Close())
	for args, want := range map[string]int{
		"service get web":                               command.ExitOK,
		"version":                                       command.ExitOK,
		"":                                              command.ExitOK,
		"service":                                       command.ExitOK,
		"service get crash":                             command.ExitGeneric,
		"doctor":                                        command.ExitGeneric,
		"sevice":                                        command.ExitUsage,
		"service destroy web":                           command.ExitUsage,
		"entity frobnicate":                             command.ExitUsage,
		"service get":                                   command.ExitUsage,
		"service get web api":                           command.ExitUsage,
		"service get Web":                               command.ExitUsage,
		"service get a/b":                               command.ExitUsage,
		"service get web -o xml":                        command.ExitUsage,
		"service ls --nope":                             command.ExitUsage,
		"service create web --wait --async":             command.ExitUsage,
		"service create web --drift maybe":              command.ExitUsage,
		"service create web -f /nowhere.yaml":           command.ExitUsage,
		"service delete web --set a=b":                  command.ExitUsage,
		"service create invalid":                        command.ExitUsage,
		"dlq redrive":                                   command.ExitUsage,
		"dlq drop 7":                                    command.ExitUsage,
		"dlq drop --reason x":                           command.ExitUsage,
		"dlq edit 7":                                    command.ExitUsage,
		"dlq edit 7 --body /nowhere.json":               command.ExitUsage,
		"dlq edit 7 --body testdata/null.json":          command.ExitUsage,
		"machine graph service -o png":                  command.ExitUsage,
		"serve --durability never":                      command.ExitUsage,
		"serve --http 0.0.0.0:80":                       command.ExitUsage,
		"service get none":                              command.ExitNotFound,
		"service update none":                           command.ExitNotFound,
		"dlq show 8":                                    command.ExitNotFound,
		"service update deleting":                       command.ExitConflict,
		"service create ready":                          command.ExitConflict,
		"service update moved --if-match 3":             command.ExitConflict,
		"service update reused --idempotency-key k":     command.ExitConflict,
		"service get secret":                            command.ExitAuth,
		"service get forbidden":                         command.ExitAuth,
		"service create late":                           command.ExitTimeout,
		"service create slow --wait=20ms":               command.ExitTimeout,
		"service wait slow --timeout 20ms":              command.ExitTimeout,
		"service get slow":                              command.ExitTimeout,
		"service create bad --wait":                     command.ExitFailed,
		"service wait bad":                              command.ExitFailed,
		"service update dead":                           command.ExitFailed,
		"service create down --idempotency-key k":       command.ExitUnreachable,
		"service create proxy":                          command.ExitUnreachable,
		"service create busy":                           command.ExitUnreachable,
		"service ls --server " + nobody.Addr().String(): command.ExitUnreachable,
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(args)
			if len(words) > 1 && words[0] != "serve" && words[0] != "sevice" && words[1] != "destroy" && words[1] != "frobnicate" && words[1] != "graph" && !strings.Contains(args, "--server") || args == "doctor" {
				words = append(words, "--server", f.URL)
			}
			code, _, stderr := exitOf1(words...)
			require.Equal(t, want, code, stderr)
			if args == "service create busy" {
				require.Contains(t, stderr, "\ntry: the same again in 3s, and less at once\n")
			}
		})
	}
}

func TestInterrupted(t *testing.T) { // not parallel: the signal is for the whole process
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
		<-r.Context().Done()
	}))
	defer web.Close()
	code, _, stderr := exitOf1("service", "watch", "--server", web.URL)
	require.Equal(t, command.ExitInterrupted, code)
	require.Empty(t, stderr)
}

func TestDoctorTellsWhatFails(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	code, stdout, stderr := exitOf1("doctor", "--server", f.URL, "--data", t.TempDir(), "--config", writeFile(t, "instar.yaml", "htpp: {}"))
	require.Equal(t, command.ExitGeneric, code)
	require.Regexp(t, `fail +configuration +.*instar.yaml:1: unknown key "htpp"`, stdout)
	require.Regexp(t, `ok +server +http://.* answers in`, stdout)
	require.Regexp(t, `ok +clock`, stdout)
	require.Regexp(t, `ok +ready: serving`, stdout)
	require.Regexp(t, `fail +ready: disk +no write for 9s`, stdout)
	require.Regexp(t, `data +/.*GiB free`, stdout)
	require.Contains(t, stderr, "3 of ")
}

func TestServerFromTheEnvironment(t *testing.T) {
	f := newFake(t)
	t.Setenv("INSTAR_HTTP", strings.TrimPrefix(f.URL, "http://"))
	t.Setenv("INSTAR_NAMESPACE", "prod")
	t.Setenv("INSTAR_TOKEN", "t1")
	code, _, stderr := exitOf1("service", "get", "web")
	require.Zero(t, code, stderr)
	require.Equal(t, []string{"GET /v1/services/web?namespace=prod | Authorization: Bearer t1"}, f.requests)

	t.Setenv("INSTAR_SERVER", "ftp://x")
	code, _, stderr = exitOf1("service", "get", "web")
	require.Equal(t, command.ExitUsage, code, stderr)
}

func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command, path []string)
	walk = func(cmd *cobra.Command, path []string) {
		names := map[string]bool{}
		for _, sub := range cmd.Commands() {
			require.False(t, names[sub.Name()], "%v has two commands %s", path, sub.Name())
			names[sub.Name()] = true
			walk(sub, append(path[:len(path):len(path)], sub.Name()))
		}
		if path == nil {
			return
		}
		require.NotEmpty(t, cmd.Short, path)
		for _, flag := range []string{"--help", "-h"} {
			code, stdout, stderr := exitOf1(append(path, flag)...)
			require.Zero(t, code, stderr)
			require.NotEmpty(t, stdout, path)
			require.Empty(t, stderr, path)
		}
	}
	walk(rootCommand(&command.Program{Options: builtin.Options()}), nil)
}

// A machine whose commands nobody could call is told of by every command, and first by the one that starts the server.
func TestAMachineWithTheNameOfACommandIsRefused(t *testing.T) {
	t.Parallel()
	options := builtin.Options()
	options.Machines = append(options.Machines, machines.Define(machines.Definition[struct{}]{
		Name: "copy", Plural: "backup", Doc: "A thing for tests.", States: []machines.State[struct{}]{{Name: "there", Terminal: true}},
		Inputs: []machines.Command{{Name: "make", Birth: true}}, Edges: []machines.Edge[struct{}]{{From: []string{machines.None}, On: "make", To: "there"}},
	}))
	for _, args := range [][]string{{"serve"}, {"version"}} {
		var stderr bytes.Buffer
		require.Equal(t, command.ExitGeneric, Main(args, strings.NewReader(""), io.Discard, &stderr, options))
		require.Equal(t, "instar: the machine copy (backup) has the name of the command \"instar backup\": give the machine another one\n", stderr.String())
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, stdout, _ := exitOf1("completion", shell)
		require.Zero(t, code)
		require.Contains(t, stdout, "instar", shell)
	}
	f := newFake(t)
	for line, want := range map[string]string{
		"service get --server " + f.URL + " ":      "api\tREADY\n",
		"entity get ":                              "service\t",
		"entity send service ":                     "create\nupdate\n",
		"service create web --drift ":              "report\nreapply\n",
		"service ls -o ":                           "table\nwide\n",
		"service ":                                 "create\tCreate the service",
		"service get --server http://127.0.0.1:1 ": ":1\n", // an error, but no noise
	} {
		_, stdout, _ := exitOf1(append([]string{"__complete"}, strings.Split(line, " ")...)...)
		require.Contains(t, stdout, want, line)
	}
}

// Every command of every machine is there without being written down.
func TestEveryMachineHasItsCommands(t *testing.T) {
	t.Parallel()
	root := rootCommand(&command.Program{Options: builtin.Options()})
	for _, m := range all.Machines() {
		for _, name := range append(entities.CommandNames(m), "ls", "get", "events", "watch", "wait") {
			cmd, _, err := root.Find([]string{m.Name, name})
			require.NoError(t, err)
			require.Equal(t, name, cmd.Name())
		}
		for _, c := range m.Inputs {
			if c.Report {
				cmd, _, _ := root.Find([]string{m.Name, c.Name})
				require.Equal(t, m.Name, cmd.Name(), "reports are not for users")
			}
		}
	}
}

func TestMachineGraphIsThatOfTheTable(t *testing.T) {
	t.Parallel()
	m := all.Machines()[0]
	_, stdout, _ := exitOf1("machine", "graph", m.Name)
	require.Equal(t, diagram.Mermaid(m), stdout)
	_, stdout, _ = exitOf1("machine", "graph", m.Name, "-o", "dot")
	require.Equal(t, diagram.DOT(m), stdout)
}

func TestVersionIsJSON(t *testing.T) {
	t.Parallel()
	code, stdout, _ := exitOf1("version", "-o", "json")
	require.Zero(t, code)
	require.Contains(t, stdout, `"go":"go1`)
}

func TestToken(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := exitOf1("token", "ci", "--role", "read", "--namespace", "default")
	require.Zero(t, code)
	require.Regexp(t, `^instar_[A-Z2-7]{26}\n$`, stdout)
	lines := stderr[strings.Index(stderr, "auth:"):]
	c, err := config.Load(config.Serve, nil, []string{"INSTAR_CONFIG=" + writeFile(t, "c.yaml", lines)})
	require.NoError(t, err)
	require.Equal(t, "read", c.Auth.Tokens[0].Role)
}

// A body that can ask for a dry run of its own is asked by --dry-run; elsewhere the server only says what it would do.
func TestDryRunIsThatOfTheBodyWhereItHasOne(t *testing.T) {
	t.Parallel()
	var got []string
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // of our own client
		got = append(got, r.URL.RequestURI()+" "+string(body))
		answer(w, 200, `{"outcome":"applied","state":"requested","version":1,"revision":5,"generation":1,"commandId":"k","dryRun":{"events":[],"effects":[]}}`)
	}))
	t.Cleanup(web.Close)
	for _, args := range []string{"database_provisioning request acme/move --enterprise-id acme --dry-run", "database_provisioning approve acme/move --dry-run"} {
		code, _, stderr := exitOf1(append(strings.Fields(args), "--server", web.URL)...)
		require.Zero(t, code, stderr)
	}
	require.Equal(t, []string{
		`/v1/tenants/acme/database_provisionings/move/request {"dryRun":true,"enterpriseId":"acme"}`,
		`/v1/tenants/acme/database_provisionings/move/approve?dryRun=true `,
	}, got)
}
