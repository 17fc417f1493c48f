package machine

import (
	"os"
	"testing"
)

func TestBootClockNeverStepsBack(t *testing.T) {
	last := SinceBoot()
	for range 1000 {
		now := SinceBoot()
		if now < last {
			t.Fatalf("SinceBoot went from %v to %v", last, now)
		}
		last = now
	}
}

func TestBootIDIsOneWord(t *testing.T) {
	if id := BootID(); len(id) != 36 {
		t.Errorf("BootID() = %q, want 36 characters", id)
	}
}

func TestNetworkKindsAreKnownByName(t *testing.T) {
	for _, name := range []string{"nfs", "cifs", "9p", "fuse.sshfs", "smb2"} {
		if !networkNames[name] {
			t.Errorf("%s is not taken for a network file system", name)
		}
	}
	fs, err := Kind(os.TempDir())
	if err != nil || fs.Network {
		t.Errorf("Kind(temporary directory) = %+v, %v; want a local one", fs, err)
	}
}
