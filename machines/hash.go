package machines

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// Hash is the SHA-256 of a value's canonical JSON: keys sorted, no white space, numbers as written. Two values that
// mean the same have the same hash, in hexadecimal, but for a number that is written in another way (1, 1.0). It fails for what does not marshal to JSON.
func Hash(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var plain any
	if err := dec.Decode(&plain); err != nil {
		return "", err
	}
	canonical, err := json.Marshal(plain) // maps are written with sorted keys
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}
