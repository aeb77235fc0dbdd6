// Package cluster tortures three nodes in a cluster: kills, leaders that die, nodes that are cut off or stand still, rolling restarts and upgrades.
package cluster
