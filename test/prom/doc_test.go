// Package prom holds what criguard has for Prometheus and Grafana to Prometheus' own
// checker: a real scrape, the alerting rules with their unit tests, the dashboard.
package prom_test
