//go:build !linux

package builtin

func ender(user, _ int) error { return asUser(user) } // as well as can be done there
