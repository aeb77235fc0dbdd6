// Package instance is the lifecycle of one instance of a service in the registry: registered, checked, found, drained,
// gone. Its key is <namespace>.<service>.<instanceId>.
package instance
