// Package kubelet converts a kubelet's configuration (KubeletConfiguration,
// kubelet.config.k8s.io/v1beta1) to criguard's. It is the only package that reads YAML.
package kubelet
