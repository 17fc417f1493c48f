package engine

import (
	"errors"

	"github.com/handsel/handsel/internal/stream"
)

func codexBuild(Ask) (Command, error) { return Command{}, errors.New("to be written") }

func codexStreams([]string) bool { return false }

func newCodexDecoder() stream.Decoder { return nil }

func codexLight([]string, string) (Confinement, error) { return Confinement{}, errors.New("to be written") }
