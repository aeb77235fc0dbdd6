package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Set by -ldflags "-X main.version=…"; without them the build information of the Go toolchain tells.
var version, commit, date string

// build is what this binary is.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	NATS    string `json:"natsServer,omitempty"` // the embedded one
}

func thisBuild() build {
	b := build{Version: version, Commit: commit, Date: date, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && b.Commit == "" {
			b.Commit = s.Value
		}
		if s.Key == "vcs.time" && b.Date == "" {
			b.Date = s.Value
		}
	}
	for _, m := range info.Deps {
		if m.Path == "github.com/nats-io/nats-server/v2" {
			b.NATS = m.Version
		}
	}
	return b
}

func versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Tell which build this is", GroupID: groupLook, Args: arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := thisBuild()
			switch output {
			case "json":
				return json.NewEncoder(cmd.OutOrStdout()).Encode(b)
			case "table":
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "instar %s (%s, %s/%s, nats-server %s)\n", b.Version, b.Go, b.OS, b.Arch, b.NATS)
				return err
			}
			return usagef("-o: %q is neither table nor json", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}
