package builtin

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// end kills everything that a user runs. The kernel reaches all of them at once, so none can start another meanwhile. The second number is of a user that nothing
// runs under: it keeps what is to end from stopping this process before. What runs under it nevertheless is killed, too.
func end(args []string) error {
	var users [2]int
	if len(args) != len(users) {
		return fmt.Errorf("%q are not two users: whose processes are to end, and one that has none", args)
	}
	for i, arg := range args {
		var err error
		if users[i], err = strconv.Atoi(arg); err != nil || users[i] <= 0 {
			return fmt.Errorf("%q is not the number of a user other than root", arg)
		}
	}
	if users[0] == users[1] {
		return fmt.Errorf("the user %d cannot end its own processes: name another one that has none", users[0])
	}
	if err := ender(users[0], users[1]); err != nil {
		return err
	}
	if err := syscall.Kill(-1, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return os.NewSyscallError("kill", err)
	}
	return nil
}
