package form_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/cmd/instar/internal/form"
)

type tree struct {
	Name string `json:"name"`
	Next *tree  `json:"next,omitempty"`
}

type common struct {
	Owner string `json:"owner"`
}

type spec struct {
	Image   string            `json:"image" doc:"What runs"`
	Size    float64           `json:"size"`
	Ports   []int             `json:"ports"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	Limits  map[string]int    `json:"limits"`
	MaxWait time.Duration     `json:"maxWait"`
	Until   time.Time         `json:"until"`
	Mode    string            `json:"mode" enum:"a,b"`
	Probe   *struct {
		Path  string `json:"path"`
		URL   []string
		Tries uint8 `json:"tries"`
	} `json:"probe"`
	Volumes []common          `json:"volumes"`
	Raw     json.RawMessage   `json:"raw"`
	Owners  map[string]common `json:"owners"`
	Secret  string            `json:"-"`
}

type body struct {
	common
	Spec   spec              `json:"spec"`
	Other  spec              `json:"other"`
	Labels map[string]string `json:"labels"`
	Reason string            `json:"reason"`
	Force  bool              `json:"force"`
	Tree   tree              `json:"tree"`
}

func flags(t *testing.T, b any, args ...string) (*form.Form, *pflag.FlagSet) {
	t.Helper()
	f, fs, inherited := form.Of(b), pflag.NewFlagSet("x", pflag.ContinueOnError), pflag.NewFlagSet("y", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	inherited.String("reason", "", "")
	f.Bind(fs, inherited)
	require.NoError(t, fs.Parse(args))
	return f, fs
}

func TestNames(t *testing.T) {
	t.Parallel()
	_, fs := flags(t, struct {
		Spec   spec              `json:"spec"`
		Policy struct{ X int }   `json:"policy"`
		Labels map[string]string `json:"labels"`
		Reason string            `json:"reason"`
	}{})
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name+" "+f.Value.Type()) })
	require.Equal(t, []string{
		"args string", "env K=V", "image string", "label K=V", "limits K=V", "max-wait duration", "mode a|b", "ports int",
		"probe-path string", "probe-tries uint8", "probe-url string", "raw JSON", "size float64", "until text", "x int",
	}, names)

	_, fs = flags(t, body{})
	require.NotNil(t, fs.Lookup("spec-image"), "two images: the whole path")
	require.NotNil(t, fs.Lookup("other-image"))
	require.NotNil(t, fs.Lookup("owner"), "embedded")
	require.NotNil(t, fs.Lookup("name"), "a type that holds itself")
	require.Nil(t, fs.Lookup("image"))
	require.Nil(t, fs.Lookup("reason"), "taken by another flag")
}

func TestJSON(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "body.yaml")
	require.NoError(t, os.WriteFile(file, []byte("spec: {image: old, env: {A: '1', B: '2'}}\nforce: true\n"), 0o600))
	f, fs := flags(t, body{}, "--spec-image", "new", "--spec-env", "B=3", "--spec-env", "C=x=y", "--spec-ports", "80", "--spec-ports", "81",
		"--spec-max-wait", "1m", "--spec-until", "2026-01-02T03:04:05Z", "--spec-probe-path", "/", "--label", "a=b", "--spec-limits", "cpu=2", "--spec-raw", `{"id":9007199254740993}`, "--force=false")
	got, err := f.JSON(fs, form.Sources{File: file, Set: []string{
		"spec.image=set", "spec.size=1.5", "spec.args=a,b", `spec.volumes=[{"owner":"x"}]`, "spec.raw.a.b=1", "spec.raw.a.c=x", "spec.env.D.E=4",
		"spec.owners.me.owner=you", "reason=because", "tree.next.next.name=deep", "spec.probe.tries=3",
	}})
	require.NoError(t, err)
	require.JSONEq(t, `{"force":false,"labels":{"a":"b"},"reason":"because","tree":{"next":{"next":{"name":"deep"}}},"spec":{
		"image":"new","env":{"A":"1","B":"3","C":"x=y","D.E":"4"},"ports":[80,81],"size":1.5,"args":["a","b"],"volumes":[{"owner":"x"}],"raw":{"a":{"b":1,"c":"x"},"id":9007199254740993},
		"owners":{"me":{"owner":"you"}},"maxWait":60000000000,"until":"2026-01-02T03:04:05Z","limits":{"cpu":2},"probe":{"path":"/","tries":3}}}`, string(got))

	got, err = f.JSON(fs, form.Sources{File: "-", Stdin: strings.NewReader(`{"force": true}`)})
	require.NoError(t, err)
	require.Contains(t, string(got), `"force":false`, "flags win over the file")

	none, fs := flags(t, nil)
	got, err = none.JSON(fs, form.Sources{})
	require.NoError(t, err)
	require.Nil(t, got)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	f, fs := flags(t, body{})
	for _, tc := range []struct{ set, file, want string }{
		{set: "spec", want: "write it as path=value"},
		{set: "spec.imag=x", want: `there is no "imag"; there are image, size`},
		{set: "spec.image.x=1", want: "nothing is below spec.image"},
		{set: "spec.volumes.0.owner=x", want: `nothing is below spec.volumes; it is given as a whole: --set 'spec.volumes=[{"owner":"OWNER"}]'`},
		{set: "spec.volumes[0].owner=x", want: `it is given as a whole: --set 'spec.volumes=[{"owner":"OWNER"}]'`},
		{set: "spec.size=big", want: `"big" is no number that fits`},
		{set: "spec.probe.tries=256", want: `"256" is no number that fits`},
		{set: "force=maybe", want: "neither true nor false"},
		{set: "spec.maxWait=60", want: "is no duration"},
		{set: "spec.until=tomorrow", want: "tomorrow"},
		{set: "spec.volumes={", want: "is no JSON"},
		{set: "spec.ports=1,x", want: `"x" is no number`},
		{file: "- a", want: "not the JSON or YAML of an object"},
		{file: "a: 1\n---\nb: 2", want: "more than one document"},
		{set: "spec.image=x", file: "spec: 7", want: "spec is no object in the file"},
	} {
		src := form.Sources{}
		if tc.set != "" {
			src.Set = []string{tc.set}
		}
		if tc.file != "" {
			src.File, src.Stdin = "-", strings.NewReader(tc.file)
		}
		_, err := f.JSON(fs, src)
		require.ErrorContains(t, err, tc.want)
	}
	for _, args := range [][]string{{"--spec-mode", "c"}, {"--label", "a"}, {"--label", "=b"}, {"--spec-ports", "x"}, {"--spec-raw", "{} {}"}} {
		_, fs := flags(t, body{})
		require.Error(t, fs.Parse(args), args)
	}
	none, fs := flags(t, nil)
	_, err := none.JSON(fs, form.Sources{Set: []string{"a=b"}})
	require.ErrorContains(t, err, "has no body")
}

// What no flag can hold is shown as --set has it, by the examples of the schema.
func TestExamples(t *testing.T) {
	t.Parallel()
	type target struct {
		Address string `json:"address" example:"10.0.0.7:8080"`
		Weight  int    `json:"weight,omitempty"`
		Mode    string `json:"mode" enum:"a,b"`
		Count   int    `json:"count"`
		On      bool   `json:"on"`
	}
	f, _ := flags(t, struct {
		Route struct {
			Targets []target          `json:"targets"`
			ByName  map[string]target `json:"byName,omitempty"`
			Hosts   []string          `json:"hosts"`
		} `json:"route"`
		Reason string `json:"reason"`
	}{})
	one := `{"address":"10.0.0.7:8080","mode":"a","count":1,"on":true}`
	require.Equal(t, []string{"--set 'route.targets=[" + one + "]'", `--set 'route.byName={"KEY":` + one + "}'", "--set 'reason=REASON'"}, f.Examples())
	require.Equal(t, "--set 'route.targets=["+one+"]'", f.Example("route.targets"))
	require.Empty(t, f.Example("route.hosts"))
	require.Empty(t, f.Example("route.targetsOf"))
}

// What the flags say is put over what is there, member by member; lists and maps are values, and what the body has no name for stays behind.
func TestABodyOverWhatIsThere(t *testing.T) {
	t.Parallel()
	type part struct {
		A int    `json:"a,omitempty"`
		B string `json:"b,omitempty"`
	}
	type body struct {
		Part   part              `json:"part"`
		List   []string          `json:"list,omitempty"`
		Labels map[string]string `json:"labels,omitempty"`
		Other  *part             `json:"other,omitempty"`
	}
	has, err := form.Object([]byte(`{"part":{"a":9007199254740993,"b":"x","more":1},"list":["1","2"],"labels":{"k":"v"},"other":null,"state":"ready"}`))
	require.NoError(t, err)
	for said, want := range map[string]string{
		`{}`: `{"labels":{"k":"v"},"list":["1","2"],"part":{"a":9007199254740993,"b":"x"}}`,
		`{"part":{"b":""},"list":["3"],"labels":{"l":"w"},"other":{"a":1}}`: `{"labels":{"l":"w"},"list":["3"],"other":{"a":1},"part":{"a":9007199254740993,"b":""}}`,
		`{"part":7,"list":[],"unknown":1}`:                                  `{"labels":{"k":"v"},"list":[],"part":7,"unknown":1}`,
	} {
		got, err := form.Of(body{}).Over([]byte(said), has)
		require.NoError(t, err)
		require.Equal(t, want, string(got))
	}
	for _, other := range []any{nil, map[string]any{}} {
		got, err := form.Of(other).Over([]byte(`{"a":1}`), has)
		require.NoError(t, err)
		require.Equal(t, `{"a":1}`, string(got))
	}
}
