package rest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func named(host string, open bool, hosts []string) bool {
	return (&Server{Open: open, o: Options{Open: open, Hosts: hosts}}).named(host)
}

func TestOpenServersAreAskedByTheirNames(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "localhost:8080": true, "LOCALHOST.": true, "web.localhost:1": true, "127.0.0.1": true, "127.9.9.9:80": true, "[::1]:8080": true, "::1": true,
		"[::ffff:127.0.0.1]:80": true, "box.lan": true, "Box.Lan:8080": true, "": true, "10.0.0.7": true, "[::2]": true,
		"evil.example": false, "evil.example:8080": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false, "notlocalhost": false, "box.lan.evil": false, "0x7f000001": false, "2130706433": false, "127.1": false,
	} {
		require.Equal(t, want, named(host, true, []string{"box.lan"}), host)
		require.True(t, named(host, false, []string{}), "tokens are asked for")
		require.True(t, named(host, true, nil), "any name")
	}
}
