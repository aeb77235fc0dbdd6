package main

import (
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/server/config"
)

// openPorts are the addresses, other than loopback, and the ports on loopback at which a process listens, as the kernel has them.
func openPorts(t *testing.T, pid int) (beyond, ports []string) {
	t.Helper()
	inodes := map[string]bool{}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	for _, fd := range fds {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())) // it may be closed by now
		if inode, ok := strings.CutPrefix(to, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for file, listens := range map[string]string{"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"} {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, file))
		require.NoError(t, err)
		for _, line := range strings.Split(string(raw), "\n")[1:] {
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != listens || !inodes[f[9]] {
				continue
			}
			address, port, _ := strings.Cut(f[1], ":")
			ip, err := hex.DecodeString(address)
			require.NoError(t, err)
			for i := 0; i < len(ip); i += 4 { // words in the order of the machine
				slices.Reverse(ip[i : i+4])
			}
			n, err := strconv.ParseUint(port, 16, 16)
			require.NoError(t, err)
			if ports = append(ports, file+" "+strconv.FormatUint(n, 10)); !net.IP(ip).IsLoopback() {
				beyond = append(beyond, net.IP(ip).String()+" "+file)
			}
		}
	}
	return beyond, ports
}

// What is started without a word about addresses, listens at two ports of loopback and nowhere else (OWASP API8), and what it stores is
// its owner's own: directories 0700, files 0600.
func TestADefaultInstallIsClosed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc")
	}
	t.Parallel()
	for _, mode := range []string{config.Serve, config.Dev} {
		defaults := config.Defaults(mode)
		for _, address := range []string{defaults.HTTP.Listen, defaults.NATS.Listen} {
			require.True(t, config.Loopback(address), address)
		}
		require.Empty(t, defaults.Cluster.Listen+defaults.Discovery.DNS+defaults.Discovery.XDS)
	}
	dir := filepath.Join(t.TempDir(), "data")
	p := launch(t, "serve", "--data", dir, "--http", "127.0.0.1:0", "--nats", "127.0.0.1:0", "--log-level", "info", "--stop-services") // other ports, lest they be taken
	require.Eventually(t, func() bool { return strings.Contains(p.out.String(), "msg=ready") }, time.Minute, 20*time.Millisecond)
	_, url, _ := strings.Cut(p.out.String(), "msg=ready http=")
	url, _, _ = strings.Cut(url, " ")
	resp, err := http.Post(url+"/v1/services/web/create?settle=30s", "application/json", strings.NewReader(`{"spec":{"image":"hello"}}`))
	require.NoError(t, err)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 200, resp.StatusCode, string(raw))

	beyond, ports := openPorts(t, p.cmd.Process.Pid)
	require.Empty(t, beyond)
	require.Len(t, slices.DeleteFunc(ports, func(p string) bool { return strings.HasPrefix(p, "udp") }), 3, "HTTP, NATS, and the service: %v", ports)
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if os.IsNotExist(err) && path != dir { // it was replaced meanwhile, or a directory was removed while it was read
			return nil
		}
		require.NoError(t, err)
		files++
		require.Zero(t, info.Mode().Perm()&0o077, "%s: %s", path, info.Mode())
		return nil
	}))
	require.Greater(t, files, 20)
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM)) // which takes its service away
	require.NoError(t, <-p.ends)
}

// No listener speaks TLS older than 1.2.
func requireTLS12(t *testing.T, address string, before string) {
	t.Helper()
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11, tls.VersionTLS12, tls.VersionTLS13} {
		conn, err := net.DialTimeout("tcp", address, 5*time.Second)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		if before != "" { // a server of NATS speaks first, in clear
			b := make([]byte, 4096)
			n, err := conn.Read(b)
			require.NoError(t, err)
			require.Contains(t, string(b[:n]), before)
		}
		err = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version}).Handshake() // it is the version that is looked at
		_ = conn.Close()
		require.Equal(t, version >= tls.VersionTLS12, err == nil, "%s %s: %v", address, tls.VersionName(version), err)
	}
}
