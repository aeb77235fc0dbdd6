package output

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// Grid is a table under construction.
type Grid struct {
	Titles []string
	Rows   [][]string
	Paint  func(column, text string) string // colours a text that stands in a column; nil does not
}

// Add appends a row.
func (g *Grid) Add(cells ...string) { g.Rows = append(g.Rows, cells) }

// Write aligns the columns; empty cells become "-". Colours do not count as width.
func (g *Grid) Write(w io.Writer) error {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.StripEscape)
	fmt.Fprintln(tw, strings.Join(g.Titles, "\t"))
	for _, row := range g.Rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = Line(c)
			if cells[i] == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	for i, line := range lines {
		if i > 0 && g.Paint != nil {
			line = g.paint([]rune(lines[0]), []rune(line))
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " ")); err != nil {
			return err
		}
	}
	return nil
}

// paint colours the cells of an aligned line, which begin where the titles do.
func (g *Grid) paint(head, line []rune) string {
	var b strings.Builder
	for i := 0; i < len(line); {
		end := i + 1
		for end < len(line) && !(end < len(head) && head[end] != ' ' && head[end-1] == ' ' && head[end-2] == ' ') {
			end++
		}
		title := strings.TrimSpace(string(head[min(i, len(head)):min(end, len(head))]))
		cell := strings.TrimRight(string(line[i:end]), " ")
		b.WriteString(g.Paint(title, cell))
		b.WriteString(strings.Repeat(" ", end-i-len([]rune(cell))))
		i = end
	}
	return b.String()
}

// Line makes a text that somebody else wrote fit for one line of a terminal: no control characters, no escapes.
func Line(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, s)
}

// Age is how long ago something was: "42s", "3m10s", "5h", "12d".
func Age(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	d := now.Sub(at)
	switch {
	case d < 0:
		return "0s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 3*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// At follows a dotted path through a decoded JSON value and writes what is there.
func At(v any, path string) string {
	for path != "" {
		m, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		if whole, ok := m[path]; ok { // the key of a label may have dots
			return Text(whole)
		}
		var step string
		step, path, _ = strings.Cut(path, ".")
		v = m[step]
	}
	return Text(v)
}

// Text writes a decoded JSON value as people would.
func Text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = Text(v[i])
		}
		return strings.Join(parts, ",")
	case map[string]any:
		return pairs(v)
	}
	return fmt.Sprint(v)
}
