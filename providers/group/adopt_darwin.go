package group

import "context"

// Adopt does nothing: this system gives orphans to its first process.
func Adopt() (bool, error) { return false, nil }

// NoNewPrivileges does nothing: this system cannot.
func NoNewPrivileges() error { return nil }

// Unprivileged does nothing: this system knows no capabilities.
func Unprivileged() error { return nil }

// EndAdopted does nothing.
func EndAdopted(context.Context) error { return nil }
