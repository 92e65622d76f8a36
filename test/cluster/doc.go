// Package cluster runs a node of Kubernetes for tests: etcd, an API server and a kubelet, on a lab's
// containerd. It has no scheduler and no controllers, so pods name their node and keep their taints.
//
// All processes are in the lab's cgroup and all files in the lab's directory. The lab removes them
// even if the cluster was not closed. A kubelet also uses two fixed directories, which are links into
// the lab's directory meanwhile, and sets kernel parameters, which Close restores. Therefore only one
// cluster runs on a machine at a time, and none beside another kubelet.
//
// [API] is a client for any cluster that a [Setup] describes, such as that of a virtual node; [Cluster] is
// one on a lab.
//
// The servers listen on loopback addresses. The kubelet serves every user of the machine.
package cluster
