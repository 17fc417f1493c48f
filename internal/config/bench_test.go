package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/handsel/handsel/internal/home"
)

// BenchmarkLoad is what reading the configuration costs an admission.
func BenchmarkLoad(b *testing.B) {
	for _, bb := range []struct {
		name, content string
		leases        bool
	}{{"no file", "", false}, {"user file", "[pools]\nheavy = 3\nall = 8\n[admission]\nwait = 60\n", false}, {"user file and slots", "[pools]\nheavy = 3\n", true}} {
		b.Run(bb.name, func(b *testing.B) {
			dir := b.TempDir()
			env := Env{UserFile: filepath.Join(dir, "user.toml"), MachineFile: filepath.Join(dir, "machine.toml"),
				LeasesExist: bb.leases, Home: home.Dir{Path: dir, From: home.Variable}}
			if bb.content != "" {
				if err := os.WriteFile(env.UserFile, []byte(bb.content), 0o600); err != nil {
					b.Fatal(err)
				}
			}
			if err := os.Chmod(dir, 0o700); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Load(env); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	data := []byte("[pools]\nheavy = 3\nall = 8\n[admission]\nwait = 60\n")
	for b.Loop() {
		parse("/f", data)
	}
}
