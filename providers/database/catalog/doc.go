// Package catalog says what belongs to a tenant in a shared database: which tables, which rows, by which key they can be read in ranges,
// and what cannot be moved.
//
// The contract:
//   - Every table of the schemas has a kind: [Tenant] (it has the tenant's column), [Child] (its rows belong to a tenant by a path of
//     foreign keys), [Reference] (copied whole), [Skip]. What is not configured is derived; what cannot be derived is a [Problem].
//   - [Report.Problems] names every table that cannot be moved, and why; [Report.Refused] are those of one mode. Nothing is left out
//     without being named in the report.
//   - Conditions of tables are SQL without parameters, with every name qualified: COPY takes no parameters.
//   - Inspecting reads the catalogue of the database and writes nothing.
package catalog
