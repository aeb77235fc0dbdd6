package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/cli/command"
	"github.com/bcc94042/instar/server/builtin"
)

var (
	fence  = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	inline = regexp.MustCompile("`((?:\\./bin/)?instar [^`]+)`")
	word   = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
	called = regexp.MustCompile(`^(?:\$ )?(?:[A-Z_]+=\S* )*(?:\./bin/|\./)?instar (.+)$`)
)

// calls are the command lines of the program that a document shows.
func calls(text string) []string {
	var lines []string
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		lines = append(lines, strings.Split(strings.ReplaceAll(block[1], "\\\n", " "), "\n")...)
	}
	text = fence.ReplaceAllString(text, "")
	for _, code := range inline.FindAllStringSubmatch(text, -1) {
		lines = append(lines, code[1])
	}
	var found []string
	for _, line := range lines {
		if m := called.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			found = append(found, m[1])
		}
	}
	return found
}

// Whoever copies a command from a document does not get to read that it has no such flag.
func TestCommandsInDocumentsAreThere(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	programs, n := builtin.Options().Programs, 0
	for _, file := range append(files, "../../../README.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, call := range calls(string(text)) {
			var args []string
			for _, w := range word.FindAllString(call, -1) {
				if strings.HasPrefix(w, "#") || strings.ContainsAny(w[:1], "|&;>…") {
					break
				}
				args = append(args, strings.NewReplacer("'", "", `"`, "").Replace(w))
			}
			other := strings.HasSuffix(file, "adding-a-machine.md") && len(args) > 0 && args[0] == "snapshot" // the machine of that page
			if len(args) == 0 || programs[args[0]].Run != nil || strings.ToUpper(args[0]) == args[0] || other {
				continue
			}
			n++
			cmd, rest, err := rootCommand(&command.Program{Options: builtin.Options()}).Find(args)
			if err == nil {
				if !cmd.Runnable() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
					t.Errorf("%s: instar %s: there is no such command", filepath.Base(file), call)
				}
				cmd.InitDefaultHelpFlag()
				err = cmd.ParseFlags(rest)
			}
			if err != nil && !strings.Contains(err.Error(), "invalid argument") && !strings.Contains(err.Error(), "help requested") { // DURATION and the like
				t.Errorf("%s: instar %s: %v", filepath.Base(file), call, err)
			}
		}
	}
	require.Greater(t, n, 100, "the documents show commands")
}
