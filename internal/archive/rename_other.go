//go:build !linux

package archive

import "errors"

func renameExclusive(string, string) error { return errors.ErrUnsupported }
