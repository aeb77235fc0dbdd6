//go:build !linux

package pdeathsig

import "syscall"

// Set does nothing: this system has no such signal.
func Set(*syscall.SysProcAttr, syscall.Signal) {}
