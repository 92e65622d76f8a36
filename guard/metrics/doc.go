// Package metrics exports what criguard observes and does as Prometheus metrics. Label values are bounded:
// signals, kinds, steps and results, never a pod or an image. docs/metrics.md documents each metric.
package metrics
