// Package providertest holds the contract of gateways as one suite, which every gateway passes.
//
// [Run] asks a gateway for what package providers promises. [Situation] names what an observation tells: a gateway
// is right when the eight situations that a real controller goes through can be told apart.
package providertest
