package builtin

import (
	"os"
	"syscall"
)

// ender makes this process one that may signal what a user runs, and that may not be signalled by it: kill(2) goes by the effective user of who sends, and by the real and the saved one of who is meant.
func ender(user, apart int) error {
	err := os.NewSyscallError("setgroups", syscall.Setgroups(nil))
	if err == nil {
		err = os.NewSyscallError("setgid", syscall.Setgid(apart))
	}
	if err == nil {
		err = os.NewSyscallError("setresuid", syscall.Setresuid(apart, user, apart))
	}
	return err
}
