// Package relay is the lifecycle of one relayed database: what brings its outbox into a stream.
//
// The contract:
//   - The id of a relay is the name of its source in the configuration. Where the database is and how one gets in stays
//     there: no entity, event or effect holds a DSN.
//   - starting, running, lagging, stalled and failed want the engine to run, draining wants it to publish what is there
//     and then to stand, paused and what ends wants it to stand. Every node that has the source follows the state.
//   - running, lagging and stalled follow what is seen. lagging is more rows, or older ones, than the thresholds allow,
//     and ends at half of them; stalled is work that stands still for stallSeconds; failed is trouble that no waiting
//     mends. failed heals when rows are seen to move.
//   - starting, draining and deleting have deadlines. A drain that is late ends as paused all the same: what was not
//     published lies in the database and goes on at resume.
//   - An observation that changes nothing in this is not told: figures that move all the time are read from the relay.
//
// machine.go is the table, observe.go judges observations, guards.go and actions.go hold what the rows name.
package relay
