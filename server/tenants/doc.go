// Package tenants serves machines/database (database_provisioning): it moves tenants out of a shared Postgres into databases of their own.
//
// The contract:
//   - There is the machine only where the configuration has the section tenants. What is wrong with that ends the start; databases that do not answer do not.
//   - Of the servers that take a region and a size, the name of the tenant decides which one it gets (rendezvous hashing); once it has a database, its server is that of the database.
//   - A second session of a tenant, of this machine or of another one that has its databases from here ([Databases.Share]), is refused at the door with the id of the first one. What the door
//     has admitted it knows at once; where two come to two nodes at once, the shared database lets one of them through.
//   - One node at a time drops databases that were taken back, when their grace period is over.
package tenants
