// Package crosscheck has a test that looks whether the program compiles for other systems.
package crosscheck
