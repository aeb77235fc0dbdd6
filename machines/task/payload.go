package task

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bcc94042/instar/machines"
)

// Run is the data of the effect run: what a worker has to do.
//
// The worker answers with a [Result], or fails with a [machines.Failure]: Retryable says whether another attempt can help, RetryAfter the least wait. It ends when
// Timeout is over, and when the stored task does not wait for its attempt any more (canceled, reset, deadline): data.attemptId is another one then, or the state is not running.
type Run struct {
	Type       string          `json:"type"`
	Params     json.RawMessage `json:"params,omitempty"` // an object, as it was given
	Repository Repository      `json:"repository,omitzero"`
	Pool       string          `json:"pool,omitempty"`     // empty is that of the nodes
	Enqueue    uint64          `json:"enqueue"`            // which enqueuing it belongs to; no other one of the name has the number, whether it was deleted meanwhile or not
	Attempt    int             `json:"attempt"`            // of that enqueuing, from 1
	Attempts   int             `json:"attempts"`           // that there are at most
	Timeout    time.Duration   `json:"timeout"`            // nanoseconds; of this attempt
	Deadline   time.Time       `json:"deadline"`           // by the clock of the store
	Documents  string          `json:"documents"`          // what the names of its documents begin with, ending in a slash
	Title      string          `json:"title,omitempty"`    // for logs and documents
	Previous   []Document      `json:"previous,omitempty"` // of the last success, if there was one
}

// Repository is where the work is done on.
type Repository struct {
	URL  string `json:"url,omitempty"`  // empty has nothing to clone
	Ref  string `json:"ref,omitempty"`  // branch, tag or commit; empty is the default branch
	Path string `json:"path,omitempty"` // below the directory of clones of the node; empty is <namespace>/<repository>

	Clone uint64 `json:"clone,omitempty"` // the start of its task clone: of the one that runs, or the last that its other tasks may have; what was fetched for a lower one is old
}

// Erase is the data of the effect erase: the documents under Documents whose enqueuing, the number that follows it up to the next slash, is lower than Below.
type Erase struct {
	Documents string `json:"documents"` // <namespace>/<repository>/<task>/
	Below     uint64 `json:"below"`
}

// Result is what a worker made of a [Run]. Texts that are longer than their bound are cut, and end in an ellipsis; with more of anything else, and with documents of others, the attempt has failed.
type Result struct {
	Worker    string          `json:"worker,omitempty"`    // who did it; at most 128 bytes
	Summary   string          `json:"summary,omitempty"`   // one line for people; at most 1024 bytes
	Documents []Document      `json:"documents,omitempty"` // at most 64
	Output    json.RawMessage `json:"output,omitempty"`    // any JSON of at most 16 KiB; larger results belong in a document

	// Snooze asks to run again after this time without using up an attempt; the rest of the result is ignored then. A duration such as 30s, at most 30 days.
	Snooze string `json:"snooze,omitempty"`
}

const maxDocuments, maxOutput = 64, 16 << 10

// MaxDocumentName is how many bytes the name of a document may have. Who reads or removes it asks by a subject that has the name as base64, and the server ends for good the connection of
// who sends a longer line than 4 KiB.
const MaxDocumentName = 1024

// NamesDocument reports whether a text can be the name of a document.
func NamesDocument(name string) bool {
	return name != "" && len(name) <= MaxDocumentName && utf8.ValidString(name)
}

// Document is what a task has written into the object store.
type Document struct {
	Name      string `json:"name"` // in the bucket of documents; at most 1024 bytes
	MediaType string `json:"mediaType,omitempty"`
	Size      int64  `json:"size"`
	Digest    string `json:"digest,omitempty"` // SHA-256=<base64url>, as the object store has it
}

// DocumentBucket is the object store bucket of documents, before the prefix of the installation.
const DocumentBucket = "documents"

// NewBatch names a run of several tasks by a text of [crypto/rand.Text], which names no other one: what is queued under the name is of that run, whenever it is.
func NewBatch(text string) string { return batchPrefix + strings.ToLower(text) }

// IsNewBatch reports whether a name is one of [NewBatch].
func IsNewBatch(name string) bool {
	random, ok := strings.CutPrefix(name, batchPrefix)
	return ok && len(random) == 26 && strings.Trim(random, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

const batchPrefix = "run-"

// Prefix is what the names of a task's documents begin with: those of all enqueuings.
func Prefix(namespace, repository, id string) string {
	return namespace + "/" + repository + "/" + id + "/"
}

// prefixOf is that of the attempt which runs.
func prefixOf(e *machines.Entity, d *Data) string {
	return Prefix(e.Namespace, e.Parent, e.ID) + strconv.FormatUint(d.Enqueue, 10) + "/" + strconv.Itoa(d.Attempt) + "/"
}

func runPayload(s *step) any {
	d := s.Data
	r := Run{
		Type: d.Type, Params: d.Params, Pool: d.Pool, Enqueue: d.Enqueue, Attempt: d.Attempt, Attempts: d.attempts(), Timeout: d.timeout(),
		Deadline: d.StartedAt.Add(d.timeout()), Documents: prefixOf(s.Entity(), d), Title: d.Title,
	}
	if d.Source != nil {
		r.Repository = *d.Source
	}
	if d.Result != nil {
		r.Previous = d.Result.Documents
	}
	return r
}

// runRoute has the tasks of a pool wait in its own queue; those of the nodes are in that of all.
func runRoute(s *step) string {
	if s.Data.Pool == NodesPool {
		return ""
	}
	return s.Data.Pool
}

func erasePayload(s *step) any {
	e := s.Entity()
	return Erase{Documents: Prefix(e.Namespace, e.Parent, e.ID), Below: s.Data.Enqueue + 1}
}
