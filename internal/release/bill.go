package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// billOf is the bill of a binary: what the Go toolchain says it was built from, which is what is in it, and no more. It is the same for the
// same binary.
func billOf(binary, version string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("cannot read what it was built from: %w", err)
	}
	raw, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	hash := sha256.Sum256(raw)
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(hash)
	program := cdx.Component{
		BOMRef: "program", Type: cdx.ComponentTypeApplication, Name: info.Main.Path, Version: version, PackageURL: purl(info.Main.Path, version),
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(hash[:])}},
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}, Properties: settings(info),
	}
	bom.Metadata = &cdx.Metadata{Component: &program}
	components := []cdx.Component{{BOMRef: purl("std", info.GoVersion), Type: cdx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: purl("std", info.GoVersion), Description: "The standard library and the runtime of Go"}}
	for _, m := range info.Deps {
		components = append(components, component(m))
	}
	var refs []string
	for _, c := range components {
		refs = append(refs, c.BOMRef)
	}
	bom.Components, bom.Dependencies = &components, &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &refs}}
	var b bytes.Buffer
	if err := cdx.NewBOMEncoder(&b, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return nil, fmt.Errorf("cannot write the bill: %w", err)
	}
	return b.Bytes(), nil
}

// component is a module; one that was replaced is what it was replaced by.
func component(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := cdx.Component{BOMRef: purl(m.Path, m.Version), Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl(m.Path, m.Version)}
	if m.Sum != "" { // as in go.sum
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}

// settings are how it was built.
func settings(info *debug.BuildInfo) *[]cdx.Property {
	list := []cdx.Property{{Name: "go:version", Value: info.GoVersion}}
	for _, s := range info.Settings {
		if !strings.HasPrefix(s.Key, "-ldflags") {
			list = append(list, cdx.Property{Name: "go:" + s.Key, Value: s.Value})
		}
	}
	return &list
}

func purl(path, version string) string { return "pkg:golang/" + path + "@" + version }

// serial is a UUID (version 8) that follows from the binary.
func serial(hash [sha256.Size]byte) string {
	u := hash[:16]
	u[6], u[8] = u[6]&0x0f|0x80, u[8]&0x3f|0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
