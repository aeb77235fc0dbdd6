package analyze

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"regexp"
	"strings"
)

// pattern is a kind of credential. The first group of the expression, or all of it without one, is the secret.
type pattern struct {
	rule   string
	expr   *regexp.Regexp
	prefix int                      // of the secret, which tells its kind and nothing else: it may be shown
	real   func(secret string) bool // nil takes every match
	words  []string                 // one of them is in the line; of lower case. Cheaper than the expression
}

var patterns = []pattern{
	{rule: "AWS access key id", expr: regexp.MustCompile(`\b((?:AKIA|ASIA)[A-Z2-7]{16})\b`), prefix: 4, words: []string{"akia", "asia"}},
	{rule: "AWS secret access key", expr: regexp.MustCompile(`(?i)aws_?(?:secret)?_?(?:access)?_?key["']?\s*[:=]+\s*["']?([A-Za-z0-9/+]{40})\b`), words: []string{"aws"}},
	{rule: "GitHub token", expr: regexp.MustCompile(`\b(gh[pousr]_[A-Za-z0-9]{36,255})\b`), prefix: 4, words: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"}},
	{rule: "GitHub fine-grained token", expr: regexp.MustCompile(`\b(github_pat_[A-Za-z0-9_]{50,255})\b`), prefix: 11, words: []string{"github_pat_"}},
	{rule: "GitLab token", expr: regexp.MustCompile(`\b(glpat-[A-Za-z0-9_-]{20,64})`), prefix: 6, words: []string{"glpat-"}},
	{rule: "Slack token", expr: regexp.MustCompile(`\b(xox[abeoprs]-[A-Za-z0-9-]{10,250})`), prefix: 5, words: []string{"xox"}},
	{rule: "Slack webhook", expr: regexp.MustCompile(`hooks\.slack\.com/services/(T[A-Z0-9]+/B[A-Z0-9]+/[A-Za-z0-9]{20,})`), words: []string{"hooks.slack.com"}},
	{rule: "Stripe key", expr: regexp.MustCompile(`\b((?:sk|rk)_live_[A-Za-z0-9]{16,255})\b`), prefix: 8, words: []string{"_live_"}},
	{rule: "Google API key", expr: regexp.MustCompile(`\b(AIza[A-Za-z0-9_-]{35})`), prefix: 4, words: []string{"aiza"}},
	{rule: "npm token", expr: regexp.MustCompile(`\b(npm_[A-Za-z0-9]{36})\b`), prefix: 4, words: []string{"npm_"}},
	{rule: "PyPI token", expr: regexp.MustCompile(`\b(pypi-AgE[A-Za-z0-9_-]{50,})`), prefix: 5, words: []string{"pypi-age"}},
	{rule: "SendGrid key", expr: regexp.MustCompile(`\b(SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43})`), prefix: 3, words: []string{"sg."}},
	{rule: "model provider key", expr: regexp.MustCompile(`\b(sk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,})`), prefix: 3, real: random, words: []string{"sk-"}},
	{rule: "NATS seed", expr: regexp.MustCompile(`\b(S[ACNOUX][A-Z2-7]{56})\b`), prefix: 2, real: random},
	{rule: "private key", expr: regexp.MustCompile(`(-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----)`), prefix: 64, words: []string{"private key"}},
	{rule: "JSON web token", expr: regexp.MustCompile(`\b(eyJ[A-Za-z0-9_-]{15,}\.eyJ[A-Za-z0-9_-]{15,}\.[A-Za-z0-9_-]{20,})`), prefix: 3, words: []string{"eyj"}},
	{rule: "password in a URL", expr: regexp.MustCompile(`[a-z][a-z0-9+.-]*://[^\s/:@"'<>]*:([^\s/:@"'<>]{3,})@[A-Za-z0-9\[]`), real: noPlaceholder, words: []string{"://"}},
	{rule: "assigned secret", expr: regexp.MustCompile(`(?i)(?:pass(?:word|wd)?|secret|token|api[_-]?key|access[_-]?key|client[_-]?secret)["']?\s*(?::=|[:=]|=>)\s*["']([^"'\s]{12,256})["']`), real: random, words: []string{"pass", "secret", "token", "key"}},
}

var placeholder = regexp.MustCompile(`(?i)example|placeholder|change.?me|your|dummy|sample|xxxx|\*\*\*|^[<$%{\[]|\$\{|\{\{|…|^(password|passwd|pass|secret|token|user|test)\d*$`)

func noPlaceholder(secret string) bool { return !placeholder.MatchString(secret) }

// random reports whether a text looks drawn by chance: letters and digits, with many different ones.
func random(secret string) bool {
	if !noPlaceholder(secret) || !strings.ContainsAny(secret, "0123456789") || !strings.ContainsFunc(secret, func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' }) {
		return false
	}
	return entropy(secret) >= 3.3
}

// entropy is in bits per byte.
func entropy(s string) float64 {
	var n [256]int
	for i := range len(s) {
		n[s[i]]++
	}
	e := 0.0
	for _, c := range n {
		if c > 0 {
			p := float64(c) / float64(len(s))
			e -= p * math.Log2(p)
		}
	}
	return e
}

// finding is a place. What was found there is masked.
type finding struct {
	Rule   string `json:"rule"`
	Path   string `json:"path"`
	Line   int    `json:"line"`
	Masked string `json:"masked"`
}

const (
	maxFindings = 1000
	maxLine     = 8 << 10 // of longer lines the beginning is searched
)

// secrets looks for credentials in the files as they are now, not in the history. A match may be an example; that it is none has to be seen by a person.
func secrets(ctx context.Context, in *Input) (*report, error) {
	found, files, more := []finding{}, map[string]bool{}, 0
	err := in.Tree.each(ctx, nil, func(f File, content []byte) {
		if bytes.IndexByte(content[:min(len(content), headBytes)], 0) >= 0 {
			return
		}
		for _, s := range secretsOf(content) {
			files[f.Path] = true
			if s.Path = f.Path; len(found) < maxFindings {
				found = append(found, s)
			} else {
				more++
			}
		}
	})
	if more > 0 {
		in.Tree.left = append(in.Tree.left, fmt.Sprintf("%d findings more than the %d that are listed", more, maxFindings))
	}
	r := &report{title: "Secrets", summary: "No credential was found.", data: map[string]any{"findings": found}}
	if len(found) > 0 {
		r.summary = fmt.Sprintf("%s in %s.", count(len(found)+more, "possible credential", "possible credentials"), count(len(files), "file", "files"))
	}
	var rows [][]string
	for _, s := range found {
		rows = append(rows, []string{s.Rule, code(s.Path), fmt.Sprint(s.Line), code(s.Masked)})
	}
	r.text.line("Searched by pattern in the files of this commit, not in the history. What is real must be revoked: a later commit does not take it back.")
	r.text.line("")
	r.text.table([]string{"kind", "file", "line#", "masked"}, rows)
	return r, err
}

// secretsOf are the findings in a text, without their path. A place that two patterns match is told once, by the more specific one.
func secretsOf(content []byte) []finding {
	var found []finding
	number := 0
	for line := range bytes.Lines(content) {
		number++
		text := string(line[:min(len(line), maxLine)])
		lower := strings.ToLower(text)
		var taken [][2]int
		for i := range patterns {
			p := &patterns[i]
			if !p.possible(lower) {
				continue
			}
			for _, m := range p.expr.FindAllStringSubmatchIndex(text, -1) {
				secret := text[m[2]:m[3]]
				if overlaps(taken, m[2], m[3]) || p.real != nil && !p.real(secret) {
					continue
				}
				taken = append(taken, [2]int{m[2], m[3]})
				found = append(found, finding{Rule: p.rule, Line: number, Masked: mask(secret, p.prefix)})
			}
		}
	}
	return found
}

func (p *pattern) possible(lower string) bool {
	for _, w := range p.words {
		if strings.Contains(lower, w) {
			return true
		}
	}
	return len(p.words) == 0
}

func overlaps(taken [][2]int, from, to int) bool {
	for _, t := range taken {
		if from < t[1] && t[0] < to {
			return true
		}
	}
	return false
}

// mask shows the public beginning of a secret and its length.
func mask(secret string, prefix int) string {
	if len(secret) <= prefix {
		return secret // a marker, such as the first line of a key
	}
	return fmt.Sprintf("%s… (%d characters)", secret[:prefix], len(secret))
}

// Mask replaces what looks like a credential in a text that others will read, such as a line of a log.
func Mask(text string) string {
	lower := strings.ToLower(text)
	for i := range patterns {
		p := &patterns[i]
		if p.rule == "private key" || !p.possible(lower) {
			continue
		}
		at := 0
		var out strings.Builder
		for _, m := range p.expr.FindAllStringSubmatchIndex(text, -1) {
			if secret := text[m[2]:m[3]]; p.real == nil || p.real(secret) || p.rule == "password in a URL" {
				out.WriteString(text[at:m[2]] + mask(secret, p.prefix))
				at = m[3]
			}
		}
		text = out.String() + text[at:]
	}
	return text
}
