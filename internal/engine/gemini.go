package engine

import (
	"errors"

	"github.com/handsel/handsel/internal/stream"
)

func geminiBuild(Ask) (Command, error) { return Command{}, errors.New("to be written") }

func geminiStreams([]string) bool { return false }

func newGeminiDecoder() stream.Decoder { return nil }

func geminiLight([]string, string) (Confinement, error) { return Confinement{}, errors.New("to be written") }
