package command

import (
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bcc94042/instar/cmd/instar/internal/client"
)

// maxPage is the largest page that the server gives.
const maxPage = 500

// Pages reads a list to its end, or to the limit when there is one.
func Pages[T any](s *Session, path string, query url.Values, limit int, read func(json.RawMessage) (T, error)) ([]T, error) {
	var items []T
	for {
		size := maxPage
		if limit > 0 {
			size = min(size, limit-len(items))
		}
		query.Set("limit", strconv.Itoa(size))
		var page struct {
			Items      []json.RawMessage `json:"items"`
			NextCursor string            `json:"nextCursor"`
			Stale      float64           `json:"staleSeconds"`
		}
		if err := s.JSON(s.Ctx, client.Request{Path: path, Query: query}, &page); err != nil {
			return nil, err
		}
		if page.Stale > 0 && len(items) == 0 {
			s.Say("The node cannot reach the others: this is its state of %s ago.", StaleFor(page.Stale))
		}
		for _, raw := range page.Items {
			it, err := read(raw)
			if err != nil {
				return nil, err
			}
			items = append(items, it)
		}
		if page.NextCursor == "" || limit > 0 && len(items) >= limit {
			return items, nil
		}
		query.Set(cursorOf(path), page.NextCursor)
	}
}

// cursorOf is the parameter that goes on with a list: a log goes on behind a sequence.
func cursorOf(path string) string {
	if strings.HasSuffix(path, "/events") || strings.HasSuffix(path, "/dead-letters") || path == "/v1/audit" {
		return "after"
	}
	return "cursor"
}

// StaleFor is a number of seconds in words.
func StaleFor(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second)
}
