package builtin

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// end kills everything that a user runs, as one of its processes. The kernel reaches all of them at once, so none can start another meanwhile.
func end(args []string) error {
	user, err := strconv.Atoi(strings.Join(args, " "))
	if err != nil || user <= 0 {
		return fmt.Errorf("%q is not the number of one user other than root", args)
	}
	if err := asUser(user); err != nil {
		return err
	}
	if err := syscall.Kill(-1, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return os.NewSyscallError("kill", err)
	}
	return nil
}
