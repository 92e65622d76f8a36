package main

import (
	"regexp"
	"strings"
	"time"
)

var (
	describedTag    = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-([0-9A-Za-z][0-9A-Za-z.]*))??(?:-(\d+)-g([0-9a-f]+))?$`)
	describedCommit = regexp.MustCompile(`^[0-9a-f]{7,40}$`)
	unfitInVersion  = regexp.MustCompile(`[^0-9A-Za-z.]+`)
)

// packageVersion converts the output of `git describe --tags --always --dirty` to a version that
// dpkg and rpm sort correctly: pre-releases before their release ("~"), commits after a tag behind
// it ("+"), and commits without a tag before all releases, by commit time.
func packageVersion(described string, commit time.Time) string {
	described, dirty := strings.CutSuffix(described, "-dirty")
	version := "0.0.0~" + unfitInVersion.ReplaceAllString(described, ".")
	if m := describedTag.FindStringSubmatch(described); m != nil {
		version = m[1]
		if m[2] != "" {
			version += "~" + m[2]
		}
		if m[3] != "" {
			version += "+git" + m[3] + "." + m[4]
		}
	} else if describedCommit.MatchString(described) {
		version = "0.0.0~git" + commit.UTC().Format("20060102150405") + "." + described
	}
	if dirty {
		version += "+dirty"
	}
	return version
}
