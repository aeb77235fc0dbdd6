package gateway_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/signer"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/bcc94042/instar/providers"
	"github.com/bcc94042/instar/providers/platform/storage"
)

// signed sends a request that is signed with the key of acme, and is the status and the answer.
func (w *world) signed(t *testing.T, method, path, body string, header map[string]string) (int, string) {
	t.Helper()
	key, err := w.keys.Give(t.Context(), "tenant-acme", "tenant-acme-r1", "acme", 1)
	require.NoError(t, err)
	r, err := http.NewRequestWithContext(t.Context(), method, w.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	answer, err := http.DefaultClient.Do(signer.SignV4(*r, key.ID, key.Secret, "", "us-east-1"))
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(text)
}

// messages is how many the stream of the bucket has.
func (w *world) messages(t *testing.T) uint64 {
	t.Helper()
	st, err := w.JS.Stream(t.Context(), "OBJ_tenant-acme")
	require.NoError(t, err)
	return st.CachedInfo().State.Msgs
}

// Clients send bodies in chunks of three forms, as that for Java does with a trailer over http; what is not known is not stored as it comes.
func TestBodiesInChunksAreThatOfTheirContent(t *testing.T) {
	w := start(t)
	key, err := w.keys.Give(t.Context(), "tenant-acme", "tenant-acme-r1", "acme", 1)
	require.NoError(t, err)
	data := random(300_001)
	for _, trailing := range []bool{false, true} {
		c, err := minio.New(strings.TrimPrefix(w.url, "http://"), &minio.Options{
			Creds: credentials.NewStaticV4(key.ID, key.Secret, ""), MaxRetries: 1, BucketLookup: minio.BucketLookupPath, TrailingHeaders: trailing,
		})
		require.NoError(t, err)
		o := minio.PutObjectOptions{}
		if trailing {
			o.Checksum = minio.ChecksumCRC32C
		}
		_, err = c.PutObject(t.Context(), "tenant-acme", "chunks", io.MultiReader(bytes.NewReader(data)), int64(len(data)), o)
		require.NoError(t, err, trailing)
		got, err := get(t, c, "chunks", minio.GetObjectOptions{})
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, got), trailing)
	}
	status, text := w.signed(t, "PUT", "/tenant-acme/trailer", "3;chunk-signature=x\r\nabc\r\n0;chunk-signature=x\r\nx-amz-checksum-crc32:AAAA\r\n\r\n", map[string]string{
		"X-Amz-Content-Sha256": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", "X-Amz-Decoded-Content-Length": "3", "X-Amz-Trailer": "x-amz-checksum-crc32",
	})
	require.Equal(t, 200, status, text)
	status, text = w.signed(t, "GET", "/tenant-acme/trailer", "", nil)
	require.Equal(t, 200, status)
	require.Equal(t, "abc", text)
	status, text = w.signed(t, "PUT", "/tenant-acme/none", "3\r\nabc\r\n", map[string]string{"X-Amz-Content-Sha256": "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "X-Amz-Decoded-Content-Length": "3"})
	require.Equal(t, http.StatusNotImplemented, status, text)
}

func TestABodyIsTheOneThatWasSigned(t *testing.T) {
	w := start(t)
	sum := sha256.Sum256([]byte("what was signed"))
	status, text := w.signed(t, "PUT", "/tenant-acme/a", "what came then!", map[string]string{"X-Amz-Content-Sha256": hex.EncodeToString(sum[:])})
	require.Equal(t, http.StatusBadRequest, status, text)
	require.Zero(t, w.messages(t))
	status, text = w.signed(t, "PUT", "/tenant-acme/a", "what was signed", map[string]string{"X-Amz-Content-Sha256": hex.EncodeToString(sum[:])})
	require.Equal(t, http.StatusOK, status, text)
}

// A form would be spooled to the disk of the server, whose it is not.
func TestFormsAreNotTaken(t *testing.T) {
	w := start(t)
	for _, path := range []string{"/tenant-acme", "/tenant-acme/", "/tenant-acme/x", "/tenant-acme?uploadId="} {
		for _, kind := range []string{"multipart/form-data; boundary=b", "application/x-www-form-urlencoded", ""} {
			status, text := w.signed(t, "POST", path, "--b\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nx\r\n--b--\r\n", map[string]string{"Content-Type": kind})
			require.Equal(t, http.StatusNotImplemented, status, text)
		}
	}
	status, text := w.signed(t, "POST", "/tenant-acme/x?uploads", "", map[string]string{"Content-Type": "multipart/related; boundary=b"})
	require.Equal(t, http.StatusOK, status, text)
}

// A body that is announced and never sent keeps no answer back.
func TestAnAnswerDoesNotWaitForABody(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	data := random(100_000)
	put(t, c, "a", data, minio.PutObjectOptions{})
	link, err := c.PresignedGetObject(t.Context(), "tenant-acme", "a", time.Minute, nil)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", link.Host)
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 1\r\n\r\n", link.RequestURI(), link.Host)
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	got, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, got))
}

func TestNamesThatNoObjectCanHaveAreRefused(t *testing.T) {
	w := start(t)
	for path, want := range map[string]int{
		"/%FF": http.StatusBadRequest, "/" + strings.Repeat("x", storage.MaxName+1): http.StatusBadRequest, "/.instar-owner": http.StatusBadRequest, "/.instar-uploads/x/00000": http.StatusBadRequest,
		"/%EF%BF%BD": http.StatusOK, "/..": http.StatusOK, "//a//b": http.StatusOK, "/a%2Fb": http.StatusOK, "/a%0Ab": http.StatusOK, "/*": http.StatusOK,
	} {
		status, text := w.signed(t, "PUT", "/tenant-acme"+path, "x", nil)
		require.Equal(t, want, status, "%s: %s", path, text)
		if status, text = w.signed(t, "POST", "/tenant-acme"+path+"?uploads", "", nil); want != http.StatusOK {
			require.Equal(t, want, status, "%s: %s", path, text)
		}
	}
}

// What is deleted leaves nothing that counts, also where nothing goes in any more.
func TestWhatIsDeletedLeavesNothing(t *testing.T) {
	w := start(t)
	_, err := w.stores.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "acme", Quota: 50_000})
	require.NoError(t, err)
	c := w.acme(t)
	n := 0
	for ; ; n++ {
		if _, err := c.PutObject(t.Context(), "tenant-acme", fmt.Sprint("empty", n), strings.NewReader(""), 0, minio.PutObjectOptions{}); err != nil {
			require.Equal(t, "EntityTooLarge", code(err))
			break
		}
	}
	require.Greater(t, n, 20)
	for i := range n {
		require.NoError(t, c.RemoveObject(t.Context(), "tenant-acme", fmt.Sprint("empty", i), minio.RemoveObjectOptions{}))
	}
	require.Zero(t, w.messages(t))
}

// The library keeps a place for each part of each upload.
func TestUploadsAreBounded(t *testing.T) {
	w := start(t)
	core := minio.Core{Client: w.acme(t)}
	var ids []string
	for {
		id, err := core.NewMultipartUpload(t.Context(), "tenant-acme", "big", minio.PutObjectOptions{})
		if err != nil {
			require.Equal(t, "SlowDown", code(err))
			break
		}
		ids = append(ids, id)
	}
	require.Len(t, ids, 100)
	require.NoError(t, core.AbortMultipartUpload(t.Context(), "tenant-acme", "big", ids[0]))
	id, err := core.NewMultipartUpload(t.Context(), "tenant-acme", "big", minio.PutObjectOptions{})
	require.NoError(t, err)
	status, text := w.signed(t, "POST", "/tenant-acme/big?uploadId="+id, "<CompleteMultipartUpload></CompleteMultipartUpload>", nil)
	require.Equal(t, http.StatusBadRequest, status, text)

	// Those of a bucket that has gone are forgotten.
	require.NoError(t, w.stores.Delete(t.Context(), "tenant-acme", "acme"))
	require.NoError(t, w.g.Tidy(t.Context()))
	_, err = w.stores.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "acme"})
	require.NoError(t, err)
	core = minio.Core{Client: w.acme(t)}
	_, err = core.NewMultipartUpload(t.Context(), "tenant-acme", "big", minio.PutObjectOptions{})
	require.NoError(t, err)
}

// The library panics with this one; the connection goes on.
func TestAPanicIsOneRequest(t *testing.T) {
	w := start(t)
	core := minio.Core{Client: w.acme(t)}
	id, err := core.NewMultipartUpload(t.Context(), "tenant-acme", "big", minio.PutObjectOptions{})
	require.NoError(t, err)
	w.signed(t, "GET", "/tenant-acme/big?part-number-marker=99999&uploadId="+id, "", nil)
	put(t, core.Client, "a", []byte("x"), minio.PutObjectOptions{})
}

// A key is that of the last task that has spoken, and of the bucket that was there then.
func TestKeysAreFenced(t *testing.T) {
	w := start(t)
	give := func(release string, fence uint64) error {
		_, err := w.keys.Give(t.Context(), "tenant-acme", release, "acme", fence)
		return err
	}
	known := func() (releases []string) {
		keys, err := w.keys.Known(t.Context(), "tenant-acme")
		require.NoError(t, err)
		for _, key := range keys {
			releases = append(releases, strings.TrimPrefix(key.ID, "tenant-acme.tenant-acme-"))
		}
		return releases
	}
	require.NoError(t, give("tenant-acme-r1", 5))
	require.NoError(t, give("tenant-acme-r2", 7))
	require.True(t, providers.IsFenced(give("tenant-acme-r3", 6)), "an older task")
	require.NoError(t, w.keys.Revoke(t.Context(), "tenant-acme", "tenant-acme-r2", "acme", 6))
	require.ElementsMatch(t, []string{"r1", "r2"}, known(), "it was given since")
	require.NoError(t, w.keys.Revoke(t.Context(), "tenant-acme", "tenant-acme-r2", "acme", 8))
	require.Equal(t, []string{"r1"}, known())
	require.True(t, providers.IsFenced(give("tenant-acme-r2", 7)), "a deploy that an undo has overtaken")

	_, err := w.keys.Give(t.Context(), "tenant-acme", "tenant-acme-r1", "another", 9)
	require.True(t, providers.IsInvalid(err), "%v", err)
	require.Equal(t, []string{"r1"}, known(), "it is not that one's bucket")
	require.NoError(t, w.stores.Delete(t.Context(), "tenant-acme", "acme"))
	require.True(t, providers.IsInvalid(give("tenant-acme-r1", 9)), "there is no bucket")
	_, err = w.stores.Ensure(t.Context(), storage.Spec{Name: "tenant-acme", Owner: "acme"})
	require.NoError(t, err)
	require.NoError(t, give("tenant-acme-r4", 1), "a session that has begun anew")
	require.Equal(t, []string{"r4"}, known())
}

// What clients of NATS have written and deleted is read here, and links are not.
func TestObjectsOfOtherClients(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	store, err := w.JS.ObjectStore(t.Context(), "tenant-acme")
	require.NoError(t, err)
	of, err := store.PutString(t.Context(), "theirs", "text")
	require.NoError(t, err)
	_, err = store.PutString(t.Context(), "gone", "text")
	require.NoError(t, err)
	require.NoError(t, store.Delete(t.Context(), "gone"))
	_, err = store.AddLink(t.Context(), "link", of)
	require.NoError(t, err)
	got, err := get(t, c, "theirs", minio.GetObjectOptions{})
	require.NoError(t, err)
	require.Equal(t, "text", string(got))
	require.Equal(t, []string{"theirs"}, names(t, c, minio.ListObjectsOptions{}))
	_, err = get(t, c, "link", minio.GetObjectOptions{})
	require.Equal(t, "NoSuchKey", code(err))
	first := minio.PutObjectOptions{}
	first.SetMatchETagExcept("*")
	put(t, c, "gone", []byte("again"), first)
	put(t, c, "link", []byte("mine"), minio.PutObjectOptions{})
	list, err := store.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 3)
	info, err := store.GetInfo(t.Context(), "theirs")
	require.NoError(t, err)
	require.Equal(t, jetstream.ErrObjectNotFound, func() error { _, err := store.GetInfo(t.Context(), "none"); return err }())
	require.Equal(t, uint64(4), info.Size)
}

// Clients encode where an object is copied from in two ways.
func TestACopyFromWhatIsEncoded(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	put(t, c, "a b/ü+%", []byte("x"), minio.PutObjectOptions{})
	for i, source := range []string{"tenant-acme%2Fa%20b%2F%C3%BC%2B%25", "tenant-acme%2Fa+b%2F%C3%BC%2B%25", "/tenant-acme/a%20b/%C3%BC%2B%25", "tenant-acme/a%20b%2F%C3%BC%2B%25", "%2Ftenant-acme%2Fa%20b%2F%C3%BC%2B%25"} {
		status, text := w.signed(t, "PUT", fmt.Sprint("/tenant-acme/copy", i), "", map[string]string{"X-Amz-Copy-Source": source})
		require.Equal(t, http.StatusOK, status, "%s: %s", source, text)
	}
	status, text := w.signed(t, "PUT", "/tenant-acme/copy", "", map[string]string{"X-Amz-Copy-Source": "tenant-globex%2Fx"})
	require.Equal(t, http.StatusNotFound, status, text)
}

func TestADocumentHasItsBound(t *testing.T) {
	w := start(t)
	put(t, w.acme(t), "kept", nil, minio.PutObjectOptions{})
	sum := sha256.Sum256([]byte("another document"))
	text := "<Delete><Object><Key>kept</Key></Object></Delete>" + strings.Repeat(" ", 3<<20)
	status, answer := w.signed(t, "POST", "/tenant-acme?delete", text, map[string]string{"X-Amz-Content-Sha256": hex.EncodeToString(sum[:])})
	require.Equal(t, http.StatusBadRequest, status, answer)
	require.Contains(t, answer, "MaxMessageLengthExceeded")
	require.Equal(t, uint64(1), w.messages(t))
}

// What is no description of an object is told, also to clients, who can do nothing about it and need not try again.
func TestABucketThatCannotBeListedSaysSo(t *testing.T) {
	w := start(t)
	_, err := w.JS.Publish(t.Context(), "$O.tenant-acme.M.x", []byte("none"))
	require.NoError(t, err)
	status, answer := w.signed(t, "GET", "/tenant-acme", "", nil)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, answer, "nats stream rmm OBJ_tenant-acme 1")
}

// What was not read of a request is not the next one.
func TestTheRestOfARequestIsNone(t *testing.T) {
	w := start(t)
	key, err := w.keys.Give(t.Context(), "tenant-acme", "tenant-acme-r1", "acme", 1)
	require.NoError(t, err)
	body := strings.Repeat("GET / HTTP/1.1\r\nHost: x\r\n\r\n", 1<<18)
	for _, path := range []string{"/tenant-acme/.instar-x", "/tenant-globex/x"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, w.url+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
		r = signer.SignV4(*r, key.ID, key.Secret, "", "us-east-1")
		c, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		require.NoError(t, err)
		defer c.Close()
		go func() { _ = r.Write(c) }()
		in := bufio.NewReader(c)
		answer, err := http.ReadResponse(in, r)
		require.NoError(t, err)
		require.GreaterOrEqual(t, answer.StatusCode, 400)
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, err)
		require.True(t, answer.Close, path)
		_, err = http.ReadResponse(in, r)
		require.Error(t, err, "nothing is answered twice")
	}
}

// A list beside deletions of what it has not read yet waits for none of it.
func TestAListBesideDeletions(t *testing.T) {
	w := start(t)
	c := w.acme(t)
	for i := range 300 {
		put(t, c, fmt.Sprintf("kept%03d", i), nil, minio.PutObjectOptions{})
		put(t, c, fmt.Sprintf("gone%03d", i), nil, minio.PutObjectOptions{})
	}
	o, err := w.stores.Objects(t.Context(), "tenant-acme", "acme")
	require.NoError(t, err)
	seen, once := map[string]bool{}, sync.Once{}
	require.NoError(t, o.Each(t.Context(), func(i *jetstream.ObjectInfo) {
		once.Do(func() {
			for n := range 300 {
				require.NoError(t, c.RemoveObject(t.Context(), "tenant-acme", fmt.Sprintf("gone%03d", n), minio.RemoveObjectOptions{}))
			}
		})
		seen[i.Name] = true
	}))
	for i := range 300 {
		require.True(t, seen[fmt.Sprintf("kept%03d", i)])
	}
}
