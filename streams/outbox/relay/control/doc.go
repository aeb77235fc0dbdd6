// Package control is what a relay and the loop of its mode share: what is asked of them (to wake, pause, drain), and what they say of
// themselves (status, figures).
package control
