// Package secret makes and keeps the credentials of tenants.
//
// The contract:
//   - A password has 256 random bits. The server gets a SCRAM-SHA-256 verifier and never the password, so that no log of statements has it.
//   - [Keys.Seal] encrypts with AEAD under the primary key of the keyset; the tenant and the resource are associated data, so that
//     what was sealed for one does not open for another. [Keys.Open] takes every key of the keyset: old ones open until they are removed.
//   - [Credentials] print as ***.
package secret

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// Credentials let an application into its database.
type Credentials struct {
	User     string
	Password string
}

// String hides them, also from %v.
func (Credentials) String() string { return "***" }

// GoString hides them from %#v.
func (Credentials) GoString() string { return "***" }

// MarshalJSON refuses: what is stored is sealed.
func (Credentials) MarshalJSON() ([]byte, error) {
	return nil, errors.New("credentials are not written in the clear: seal them")
}

// New makes credentials for a role.
func New(user string) Credentials {
	random := make([]byte, 32)
	rand.Read(random) // never fails
	return Credentials{User: user, Password: base64.RawURLEncoding.EncodeToString(random)}
}

// iterations of SCRAM; what Postgres itself uses (scram_iterations).
const iterations = 4096

// Verifier is what Postgres stores instead of the password (RFC 5803, as CREATE ROLE … PASSWORD takes it).
func (c Credentials) Verifier() (string, error) {
	salt := make([]byte, 16)
	rand.Read(salt) // never fails
	salted, err := pbkdf2.Key(sha256.New, c.Password, salt, iterations, sha256.Size)
	if err != nil {
		return "", err
	}
	sign := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text)) // never fails
		return h.Sum(nil)
	}
	stored := sha256.Sum256(sign(salted, "Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, encode(salt), encode(stored[:]), encode(sign(salted, "Server Key"))), nil
}

// Keys seal and open credentials. They are safe for concurrent use.
type Keys struct{ aead tink.AEAD }

// NewKeyset makes a keyset with one key, in Tink's JSON. It is in the clear: keep it in a file that only the server can read.
func NewKeyset() ([]byte, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("cannot make a keyset: %w", err)
	}
	return write(handle)
}

// Rotate adds a key to a keyset and makes it the primary one; the others still open what they have sealed.
func Rotate(set []byte) ([]byte, error) {
	handle, err := read(set)
	if err != nil {
		return nil, err
	}
	manager := keyset.NewManagerFromHandle(handle)
	id, err := manager.Add(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("cannot rotate the keyset: %w", err)
	}
	if err := manager.SetPrimary(id); err != nil {
		return nil, fmt.Errorf("cannot rotate the keyset: %w", err)
	}
	if handle, err = manager.Handle(); err != nil {
		return nil, fmt.Errorf("cannot rotate the keyset: %w", err)
	}
	return write(handle)
}

// Open makes keys of a keyset in Tink's JSON.
func Open(set []byte) (*Keys, error) {
	handle, err := read(set)
	if err != nil {
		return nil, err
	}
	a, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("cannot use the keyset: %w", err)
	}
	return &Keys{aead: a}, nil
}

func read(set []byte) (*keyset.Handle, error) {
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(set)))
	if err != nil {
		return nil, errors.New("cannot read the keyset: it is not one of Tink's in JSON")
	}
	return handle, nil
}

func write(handle *keyset.Handle) ([]byte, error) {
	var out bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&out)); err != nil {
		return nil, fmt.Errorf("cannot write the keyset: %w", err)
	}
	return out.Bytes(), nil
}

// Encrypt is [Keys.Seal] for any bytes and what they belong to.
func (k *Keys) Encrypt(plain, associated []byte) ([]byte, error) {
	return k.aead.Encrypt(plain, associated)
}

// Decrypt opens what [Keys.Encrypt] has made, for the same associated data.
func (k *Keys) Decrypt(sealed, associated []byte) ([]byte, error) {
	return k.aead.Decrypt(sealed, associated)
}

type sealed struct {
	User     string `json:"user"`
	Password string `json:"password"`
}

func associated(tenant, resource string) []byte { return []byte(tenant + "/" + resource) }

// Seal encrypts credentials of a resource of a tenant.
func (k *Keys) Seal(c Credentials, tenant, resource string) (string, error) {
	clear, err := json.Marshal(sealed(c))
	if err != nil {
		return "", err
	}
	text, err := k.aead.Encrypt(clear, associated(tenant, resource))
	if err != nil {
		return "", fmt.Errorf("cannot seal the credentials of %s/%s: %w", tenant, resource, err)
	}
	return base64.StdEncoding.EncodeToString(text), nil
}

// Unseal decrypts them. It fails for another tenant, another resource, and a key that is not in the keyset.
func (k *Keys) Unseal(text, tenant, resource string) (Credentials, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return Credentials{}, fmt.Errorf("the credentials of %s/%s are not base64", tenant, resource)
	}
	clear, err := k.aead.Decrypt(raw, associated(tenant, resource))
	if err != nil {
		return Credentials{}, fmt.Errorf("the credentials of %s/%s do not open: they were sealed with a key that is not in the keyset, or for something else", tenant, resource)
	}
	var c sealed
	if err := json.Unmarshal(clear, &c); err != nil {
		return Credentials{}, fmt.Errorf("the credentials of %s/%s cannot be read", tenant, resource)
	}
	return Credentials(c), nil
}
