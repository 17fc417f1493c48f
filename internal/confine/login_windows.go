package confine

import "os"

// openPlain finds nothing: nothing is confined here, and so nothing lent.
func openPlain(string) (*os.File, error) { return nil, nil }
