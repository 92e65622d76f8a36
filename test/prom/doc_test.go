// Package prom checks criguard's files for Prometheus and Grafana with Prometheus' own checker: a
// real scrape, the alerting rules with their unit tests, and the dashboard.
package prom_test
