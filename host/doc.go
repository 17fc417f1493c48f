// Package host runs handsel's dispatcher inside a program of yours.
//
// The handsel command's `dispatch` is this package and little more. It is apart
// from package handsel because it links a database, which a program that only
// starts or enqueues agents does not need.
package host
