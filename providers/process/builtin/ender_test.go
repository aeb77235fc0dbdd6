package builtin

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// asEnder has the test binary wait as end is when it kills.
const asEnder = "as-ender"

func waitAsEnder(args []string) {
	user, _ := strconv.Atoi(args[0])
	apart, _ := strconv.Atoi(args[1])
	if err := ender(user, apart); err != nil {
		_, _ = os.Stdout.WriteString(err.Error())
	}
	_, _ = os.Stdout.WriteString("\n")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
}

// Who is to be ended cannot signal what ends it.
func TestNobodyStopsItsEnd(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("this test is not root of a Linux, so it cannot be two users at once")
	}
	user := 0x70000000 + 4*os.Getpid() // which is nobody's
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, asEnder, strconv.Itoa(user), strconv.Itoa(user+1))
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { require.NoError(t, cmd.Wait()) }()
	defer func() { _ = in.Close() }()
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	if said != "\n" {
		t.Skip("this machine has not the users: ", said)
	}
	signal := func(as int) error {
		kill := exec.Command("/bin/kill", "-0", strconv.Itoa(cmd.Process.Pid))
		kill.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(as), Gid: uint32(as)}}
		return kill.Run()
	}
	var refused *exec.ExitError
	require.ErrorAs(t, signal(user), &refused)
	require.NoError(t, signal(0))
}
