package builtin

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// become replaces this process by the command in args. exec keeps the process id, so LISTEN_PID, without which
// sd_listen_fds(3) ignores passed sockets, is right.
func become(args []string) error {
	if len(args) == 0 {
		return errors.New("no command")
	}
	if err := os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	// #nosec G204 -- the command of a template of the configuration
	if err := syscall.Exec(args[0], args, os.Environ()); err != nil {
		return fmt.Errorf("cannot run %s: %w", args[0], err)
	}
	return nil
}
