package engine

import (
	"errors"

	"github.com/handsel/handsel/internal/stream"
)

func piBuild(Ask) (Command, error) { return Command{}, errors.New("to be written") }

func piStreams([]string) bool { return false }

func newPiDecoder() stream.Decoder { return nil }
