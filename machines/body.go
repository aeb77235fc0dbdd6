package machines

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/bcc94042/instar/internal/strictjson"
)

// MaxBody bounds the body of a command, and the data of a report, in bytes.
const MaxBody = 256 << 10

// decodeBody refuses what is too large, unknown fields, names in another case, wrong types, trailing text, and what the body itself finds wrong: only then there is a body beside the refusal.
func decodeBody(c *Command, raw []byte) (any, *Refusal) {
	if len(raw) > MaxBody {
		return nil, Invalid(FieldError{"body", fmt.Sprintf("is larger than %d bytes", MaxBody)})
	}
	if c.Body == nil {
		if raw = bytes.TrimSpace(raw); len(raw) > 0 && !bytes.Equal(raw, []byte("{}")) && !bytes.Equal(raw, []byte("null")) {
			return nil, Invalid(FieldError{"body", c.Name + " takes no body"})
		}
		return nil, nil
	}
	body := reflect.New(reflect.TypeOf(c.Body)).Interface()
	if len(bytes.TrimSpace(raw)) > 0 {
		switch err := strictjson.Unmarshal(raw, body); {
		case errors.Is(err, strictjson.ErrTrailing):
			return nil, Invalid(FieldError{"body", "has text after the JSON value"})
		case err != nil:
			return nil, Invalid(fieldError(err))
		}
	}
	if v, ok := body.(Validator); ok {
		if r := v.Validate(); r != nil {
			return body, r
		}
	}
	return body, nil
}

func fieldError(err error) FieldError {
	var typ *json.UnmarshalTypeError
	if errors.As(err, &typ) {
		return FieldError{cmp.Or(typ.Field, "body"), fmt.Sprintf("expected %s, got %s", typ.Type, typ.Value)}
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return FieldError{strings.Trim(field, `"`), "unknown field"}
	}
	return FieldError{"body", "is not valid JSON: " + strings.TrimPrefix(err.Error(), "json: ")}
}
