package main

import (
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/stretchr/testify/require"
)

// tool runs a program that who checks a release has.
func tool(t *testing.T, dir, stdin string, words ...string) error {
	t.Helper()
	path, err := exec.LookPath(words[0])
	if err != nil {
		t.Skipf("%s is not here", words[0])
	}
	cmd := exec.CommandContext(t.Context(), path, words[1:]...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	t.Log(string(out))
	return err
}

// What is released here is this program itself: what is given to others is checked as SECURITY.md says, and is the same when it is built again.
func TestARelease(t *testing.T) {
	dir := t.TempDir()
	target := runtime.GOOS + "/" + runtime.GOARCH
	key := filepath.Join(dir, "key")
	require.NoError(t, tool(t, dir, "", "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key))
	make := func(name string) string {
		r := release{root: ".", pkg: ".", version: "v1.2.3-rc.1", targets: []string{target}, out: filepath.Join(dir, name), key: key}
		require.NoError(t, r.make(t.Context()))
		require.ErrorContains(t, r.make(t.Context()), "remove it first")
		return r.out
	}
	out := make("dist")
	binary := filepath.Join(out, "instar_v1.2.3-rc.1_"+runtime.GOOS+"_"+runtime.GOARCH)

	require.NoError(t, tool(t, out, "", "sha256sum", "--check", "--strict", sums))
	public, err := os.ReadFile(key + ".pub")
	require.NoError(t, err)
	signers := filepath.Join(dir, "allowed_signers")
	require.NoError(t, os.WriteFile(signers, append([]byte("instar "), public...), 0o600))
	signed, err := os.ReadFile(filepath.Join(out, sums))
	require.NoError(t, err)
	verify := func(text, namespace string) error {
		return tool(t, out, text, "ssh-keygen", "-Y", "verify", "-f", signers, "-I", "instar", "-n", namespace, "-s", sums+".sig")
	}
	require.NoError(t, verify(string(signed), namespace))
	require.Error(t, verify(string(signed)+"0  another\n", namespace))
	require.Error(t, verify(string(signed), "file"), "a signature of something else")

	info, err := buildinfo.ReadFile(binary)
	require.NoError(t, err)
	raw, err := os.ReadFile(binary)
	require.NoError(t, err)
	here, err := os.Getwd()
	require.NoError(t, err)
	require.NotContains(t, string(raw), here, "no path of who built it")
	f, err := os.Open(binary + ".cdx.json")
	require.NoError(t, err)
	defer f.Close()
	var bom cdx.BOM
	require.NoError(t, cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom))
	require.Equal(t, cdx.SpecVersion1_6, bom.SpecVersion)
	have := map[string]bool{}
	for _, c := range *bom.Components {
		require.False(t, have[c.BOMRef], c.BOMRef)
		have[c.BOMRef] = true
	}
	for _, m := range info.Deps {
		require.True(t, have[purl(m.Path, m.Version)], m.Path)
	}
	require.True(t, have["pkg:golang/github.com/CycloneDX/cyclonedx-go@v0.12.0"])
	require.True(t, have["pkg:golang/std@"+info.GoVersion])
	require.Len(t, have, len(info.Deps)+1)
	require.Contains(t, string(signed), (*bom.Metadata.Component.Hashes)[0].Value+"  "+filepath.Base(binary), "of this very binary")

	again, err := os.ReadFile(filepath.Join(make("again"), sums))
	require.NoError(t, err)
	require.Equal(t, string(signed), string(again), "built again it is the same")
	require.ErrorContains(t, (&release{version: "1.2"}).make(t.Context()), "is not like v1.2.3")
}
