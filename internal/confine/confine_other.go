//go:build !linux

package confine

// Supported says that there is nothing here to confine with.
func Supported() (abi int, err error) { return 0, &Unsupported{"only Linux has what it takes"} }

// CanKeep says that it cannot.
func CanKeep([]uint16) error {
	_, err := Supported()
	return err
}

// Ruleset is never made here.
type Ruleset struct{}

// Ruleset refuses.
func (r Rules) Ruleset() (*Ruleset, error) {
	_, err := Supported()
	return nil, err
}

// Enter refuses.
func (s *Ruleset) Enter() error {
	_, err := Supported()
	return err
}

// Close has nothing to do.
func (s *Ruleset) Close() error { return nil }
