package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// No file, however malformed, can keep the service from starting or from reporting what is wrong.
func TestParseConfigTakesBoundedTime(t *testing.T) {
	const bound = time.Minute // for a hang, even on a busy machine; without the limits, it takes minutes
	fillWith := func(line func(i int) string) string {
		var b strings.Builder
		for i := 0; b.Len() < maxFile-100; i++ {
			b.WriteString(line(i))
		}
		return b.String()
	}
	deep := maxDepth - 1
	for name, text := range map[string]string{
		"nested tables":   "a = " + strings.Repeat("{a = ", 10_000),
		"nested lists":    "a = " + strings.Repeat("[", maxFile-10),
		"long key":        strings.Repeat("a.", maxFile/2-10) + "a = 1",
		"long header":     "[" + strings.Repeat("a.", maxFile/2-10) + "a]",
		"unknown keys":    fillWith(func(i int) string { return fmt.Sprintf("key%d = 1\n", i) }),
		"unknown tables":  fillWith(func(i int) string { return fmt.Sprintf("[table%d]\n", i) }),
		"unknown signals": "[eviction.hard]\n" + fillWith(func(i int) string { return fmt.Sprintf("s%d = '1'\n", i) }),
		"unknown ranks":   "[rank]\nmemory = [" + fillWith(func(i int) string { return fmt.Sprintf("'r%d',", i) }) + "]",
		"bad rules":       fillWith(func(int) string { return "[[protect]]\n" }),
		"good rules":      fillWith(func(i int) string { return fmt.Sprintf("[[protect]]\nname = '%d'\n", i) }),
		"deep as allowed": fillWith(func(i int) string {
			return fmt.Sprintf("k%d = %s1%s\n", i, strings.Repeat("{a = ", deep), strings.Repeat("}", deep))
		}),
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			_, err := Parse("test.toml", strings.NewReader(text))
			if took := time.Since(begin); took > bound {
				t.Errorf("took %s", took)
			} else {
				t.Logf("took %s", took)
			}
			if bad := name != "good rules"; bad != (err != nil) {
				t.Errorf("got %.200v", err)
			}
		})
	}
}
