//go:build !linux

package builtin

import "errors"

func apart() error { return errors.ErrUnsupported }

// CanApart fails: only Linux has such namespaces.
func CanApart() error { return errors.ErrUnsupported }
