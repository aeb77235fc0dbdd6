// Package discovery answers "where is service X?" from memory: a catalog that follows the bucket of the instances.
package discovery
