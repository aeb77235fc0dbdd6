// Package storage gives a tenant a bucket of its own, with a quota.
//
// The contract of every [Provider], checked by one suite (package storagetest):
//   - Ensure is get-or-create by name. A bucket carries the mark of its owner; one with another mark, or with none, is never taken over: that is Invalid.
//   - Ensure brings the quota of a bucket of this owner in line, and leaves its objects alone. What would go beyond the quota is refused when it is written.
//   - Quotas are kept by stores that have them: S3 has none.
//   - Read gives every object with what it had when it was listed, or fails.
//   - Delete removes the bucket with everything in it, if it is the owner's own. That there is none is fine. What has another mark, or objects and no mark, is left alone, which is an
//     [*AnothersError]: whoever has made it learns that it stays.
//   - Errors are those of package providers; only Unavailable and Timeout may pass by themselves.
//   - Nothing is fenced here: whoever calls Ensure again after Delete makes a new bucket. The performer above fences.
//
// [ObjectStores] keeps buckets in JetStream, [S3] in a store that speaks S3.
package storage
