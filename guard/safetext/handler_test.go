package safetext

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestHandler(t *testing.T) {
	var out strings.Builder
	// slog's JSON handler passes C1 and bidi controls through, so it shows what the wrapper does.
	log := slog.New(NewHandler(slog.NewJSONHandler(&out, nil))).With("pod", "a\u202eb").WithGroup("g")
	log.Info("stopping", "reason", errors.New("c\u009bd"), slog.Group("in", "name", "e\u200bf"), "n", 7, "lines", "x\ny")
	for _, want := range []string{`a\\u202eb`, `c\\u009bd`, `e\\u200bf`, `"n":7`, `x\ny`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in %s", want, out.String())
		}
	}
	if !isSafe(out.String(), true) {
		t.Errorf("%q", out.String())
	}
}
