// Package build says what a binary is.
package build

import (
	"runtime"
	"runtime/debug"
)

// Info is what a binary is.
type Info struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	NATS    string `json:"natsServer,omitempty"` // the embedded one
}

// Filled is the build with what the Go toolchain knows of it, where nothing else was said.
func (i Info) Filled() Info {
	i.Go, i.OS, i.Arch = runtime.Version(), runtime.GOOS, runtime.GOARCH
	built, ok := debug.ReadBuildInfo()
	if !ok {
		return i
	}
	if i.Version == "" {
		i.Version = built.Main.Version
	}
	for _, s := range built.Settings {
		if s.Key == "vcs.revision" && i.Commit == "" {
			i.Commit = s.Value
		}
		if s.Key == "vcs.time" && i.Date == "" {
			i.Date = s.Value
		}
	}
	for _, m := range built.Deps {
		if m.Path == "github.com/nats-io/nats-server/v2" {
			i.NATS = m.Version
		}
	}
	return i
}
