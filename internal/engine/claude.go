package engine

import (
	"errors"

	"github.com/handsel/handsel/internal/stream"
)

func claudeBuild(Ask) (Command, error) { return Command{}, errors.New("to be written") }

func claudeStreams([]string) bool { return false }

func newClaudeDecoder() stream.Decoder { return nil }

func claudeLight([]string, string) (Confinement, error) { return Confinement{}, errors.New("to be written") }
