//go:build !linux && !darwin

package home

func renameNew(from, to string) error { return linkNew(from, to) }
