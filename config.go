package handsel

import (
	"github.com/handsel/handsel/internal/config"
)

type (
	// Setting is one effective setting and where it comes from.
	Setting = config.Shown

	// ConfigFile is one configuration file and what became of it.
	ConfigFile = config.Source
)

// ErrConfigExists reports that InitConfig found a file and left it alone.
var ErrConfigExists = config.ErrExists

// Config lists the settings in force with their sources, the files that were
// looked for, and every mistake. It changes nothing.
func (h *Home) Config() (settings []Setting, files []ConfigFile, problems []error) {
	s, problems := config.LoadLenient(h.configEnv())
	return s.Show(), s.Files, problems
}

// UserConfigFile is the path of the user's configuration file.
func UserConfigFile() (string, error) { return config.UserFile() }

// MachineConfigFile is the path of the machine's configuration file.
const MachineConfigFile = config.MachineFile

// CheckConfig lists every mistake in one file. A missing file has none.
func CheckConfig(path string) []error { return config.Check(path) }

// InitConfig writes a commented example, in which nothing is set. It never
// replaces a file: ErrConfigExists.
func InitConfig(path string) error { return config.Init(path) }

// SetConfig sets one key in a file, or takes it out when value is empty, and
// leaves everything else in it as it is. *BadConfig when the result would not
// parse; the file is unchanged then.
func SetConfig(path, key, value string) error { return config.Set(path, key, value) }
