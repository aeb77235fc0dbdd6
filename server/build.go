package server

import (
	"runtime"
	"runtime/debug"
)

// Build is what a binary is.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	NATS    string `json:"natsServer,omitempty"` // the embedded one
}

// Filled is the build with what the Go toolchain knows of it, where nothing else was said.
func (b Build) Filled() Build {
	b.Go, b.OS, b.Arch = runtime.Version(), runtime.GOOS, runtime.GOARCH
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
