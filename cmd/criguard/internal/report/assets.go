package report

import (
	"crypto/sha256"
	_ "embed" // embeds the page's own styles and scripts
	"encoding/base64"
)

//go:embed assets/uPlot.iife.min.js
var plotScript string

//go:embed assets/uPlot.min.css
var plotStyle string

//go:embed assets/uPlot.LICENSE
var plotLicence string

//go:embed assets/page.js
var pageScript string

//go:embed assets/page.css
var pageStyle string

// digest returns the source expression that allows a script or a style in a content security
// policy.
func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// contentPolicy allows only the page's own scripts and styles.
func contentPolicy() string {
	return "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " + digest(style()) +
		"; script-src " + digest(plotScript) + " " + digest(pageScript)
}

func style() string { return plotStyle + pageStyle }
