package handsel

import (
	"slices"
)

// GroupNames are the engines and pools that there are here, by name.
type GroupNames struct{ Engines, Pools []string }

// GroupNames lists what the configuration and the disk name, for whoever offers
// names to choose from. It changes nothing; what cannot be read has no name here.
func (h *Home) GroupNames() GroupNames {
	engines := h.engineNames()
	slices.Sort(engines)
	return GroupNames{Engines: slices.Compact(engines), Pools: h.poolNames()}
}
