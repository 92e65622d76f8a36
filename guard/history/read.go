package history

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/rundir"
)

// Read returns the selected passes of the history file in dir, oldest first, without a service. The note says
// where they come from. Without a file it returns fs.ErrNotExist.
func Read(ctx context.Context, dir string, q api.HistoryQuery) (api.HistoryList, error) {
	h := &History{file: file{dir: dir, readers: rundir.ForOperators()}, readers: make(chan struct{}, 1)}
	return h.readFile(ctx, q)
}

func (h *History) readFile(ctx context.Context, q api.HistoryQuery) (api.HistoryList, error) {
	list := api.HistoryList{APIVersion: api.APIVersion, Passes: []api.Pass{}, Note: "no service answers; read from " + h.file.path()}
	skipped := 0
	fileErr, err := h.fromFile(ctx, func(ctx context.Context, lines chan<- []byte) error {
		return h.file.query(ctx, fileQuery{HistoryQuery: q, keep: math.MaxInt, whole: math.MaxInt}, lines)
	}, func(line []byte) error {
		var p api.Pass
		if json.Unmarshal(line, &p) == nil {
			list.Passes = append(list.Passes, p)
		} else {
			skipped++
		}
		return nil
	})
	if err = cmp.Or(err, fileErr); err == nil {
		err = skippedError(skipped)
	}
	if errors.Is(err, errDamagedLine) {
		list.Note += ": " + err.Error()
		return list, nil
	}
	if err != nil {
		return api.HistoryList{}, fmt.Errorf("read history without a service: %w", err)
	}
	return list, nil
}
