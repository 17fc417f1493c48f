//go:build !failpoint

package machine

func seam(string) (string, bool) { return "", false }
