package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/criguard/criguard/test/lab"
)

// API is a client of a cluster's API server, as its administrator, and of its kubelet.
type API struct {
	setup  Setup
	token  string
	client *http.Client // nil until the API server serves
}

// trust returns a client that trusts a certificate of the cluster, which a server has created for itself.
func (a *API) trust(certificate string) (*http.Client, error) {
	text, err := os.ReadFile(a.setup.path(certificate))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("read %s: no certificate", certificate)
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}}, nil
}

// EtcdServes reports whether etcd serves. If not, the error says why.
func (a *API) EtcdServes(ctx context.Context) (bool, error) {
	_, err := get(ctx, http.DefaultClient, a.setup.etcdURL()+"/health")
	return err == nil, err
}

// Serves reports whether the API server is ready for pods. It creates the default namespace by itself.
// If it is not ready, the error says why.
func (a *API) Serves(ctx context.Context) (ok bool, err error) {
	if a.client != nil {
		a.client.CloseIdleConnections()
	}
	if a.client, err = a.trust(serverCert); err != nil {
		return false, err
	}
	for _, path := range []string{"/readyz", "/api/v1/namespaces/default"} {
		if err := a.call(ctx, http.MethodGet, path, nil, nil); err != nil {
			return false, err
		}
	}
	return true, nil
}

// KubeletServes reports whether the kubelet serves and its node is ready. If not, the error says why.
func (a *API) KubeletServes(ctx context.Context) (bool, error) {
	node, err := a.GetNode(ctx)
	if err != nil {
		return false, err
	}
	if ready := node.Condition("Ready"); ready.Status != "True" {
		return false, fmt.Errorf("node is not ready: %s", ready.Message)
	}
	_, err = a.askKubelet(ctx, "/healthz")
	return err == nil, err
}

// call sends a request with a JSON body to the API server and decodes its answer. body and answer may
// be nil.
func (a *API) call(ctx context.Context, method, path string, body, answer any) error {
	got, err := a.send(ctx, method, path, "application/json", body)
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// send sends a request to the API server and returns its answer.
func (a *API) send(ctx context.Context, method, path, contentType string, body any) ([]byte, error) {
	var reader io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.setup.serverURL()+path, reader)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Content-Type", contentType)
	return do(a.client, request)
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	return do(client, request)
}

// do sends a request and returns the body of a successful answer.
func do(client *http.Client, request *http.Request) ([]byte, error) {
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("%s %s: %s: %s", request.Method, request.URL.Path, answer.Status, bytes.TrimSpace(text))
	}
	return text, nil
}

// CreatePod creates a pod on the node. It fills in what every pod here needs.
func (a *API) CreatePod(ctx context.Context, pod Pod) error {
	pod = complete(pod)
	pod.Spec.NodeName = Node
	return a.call(ctx, http.MethodPost, "/api/v1/namespaces/"+pod.Metadata.Namespace+"/pods", pod, nil)
}

// CreateStaticPod creates a pod that the kubelet reads from a file. Its mirror pod in the API has the
// node's name appended.
func (a *API) CreateStaticPod(pod Pod) error {
	text, err := json.Marshal(complete(pod))
	if err != nil {
		return err
	}
	return os.WriteFile(a.StaticPodPath(pod.Metadata.Name), text, 0o600)
}

// StaticPodPath returns the file from which the kubelet reads the static pod of a name, as JSON or YAML.
func (a *API) StaticPodPath(name string) string { return a.setup.path("static/" + name + ".json") }

// complete fills in a pod's defaults.
func complete(pod Pod) Pod {
	pod.APIVersion, pod.Kind = "v1", "Pod"
	if pod.Metadata.Namespace == "" {
		pod.Metadata.Namespace = "default"
	}
	pod.Spec.HostNetwork, pod.Spec.AutomountServiceAccountToken = true, new(bool)
	pod.Spec.Containers, pod.Spec.InitContainers = slices.Clone(pod.Spec.Containers), slices.Clone(pod.Spec.InitContainers)
	for _, containers := range [][]Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range containers {
			c := &containers[i]
			c.Image, c.ImagePullPolicy = cmp.Or(c.Image, lab.WorkloadImage), "Never"
		}
	}
	return pod
}

// Pods returns the pods of all namespaces by name.
func (a *API) Pods(ctx context.Context) (map[string]Pod, error) {
	var list struct{ Items []Pod }
	if err := a.call(ctx, http.MethodGet, "/api/v1/pods", nil, &list); err != nil {
		return nil, err
	}
	pods := map[string]Pod{}
	for _, p := range list.Items {
		pods[p.Metadata.Name] = p
	}
	return pods, nil
}

// ResizePod changes the resources of a pod's container in place.
func (a *API) ResizePod(ctx context.Context, namespace, name, container string, resources Resources) error {
	patch := object{"spec": object{"containers": []object{{"name": container, "resources": resources}}}}
	_, err := a.send(ctx, http.MethodPatch, "/api/v1/namespaces/"+namespace+"/pods/"+name+"/resize", "application/strategic-merge-patch+json", patch)
	return err
}

// DeletePods deletes the pods of a namespace. The kubelet ends and removes them.
func (a *API) DeletePods(ctx context.Context, namespace string) error {
	return a.call(ctx, http.MethodDelete, "/api/v1/namespaces/"+namespace+"/pods?gracePeriodSeconds=1", nil, nil)
}

// DeletePod deletes a pod. The kubelet ends and removes it.
func (a *API) DeletePod(ctx context.Context, namespace, name string) error {
	return a.call(ctx, http.MethodDelete, "/api/v1/namespaces/"+namespace+"/pods/"+name+"?gracePeriodSeconds=1", nil, nil)
}

// PreviousLog returns the log of the previous run of a pod's only container.
func (a *API) PreviousLog(ctx context.Context, namespace, name string) (string, error) {
	text, err := a.send(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods/"+name+"/log?previous=true", "", nil)
	return string(text), err
}

// Events returns the events about pods of a namespace.
func (a *API) Events(ctx context.Context, namespace string) ([]Event, error) {
	var list struct{ Items []Event }
	err := a.call(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/events", nil, &list)
	return list.Items, err
}

// Summary returns the kubelet's statistics.
func (a *API) Summary(ctx context.Context) (s Summary, err error) {
	text, err := a.askKubelet(ctx, "/stats/summary")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// askKubelet gets a page of the kubelet itself: the API server forwards no requests to loopback addresses.
func (a *API) askKubelet(ctx context.Context, path string) ([]byte, error) {
	client, err := a.trust(kubeletCert)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	return get(ctx, client, a.setup.kubeletURL()+path)
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (a *API) Kubeconfig() string { return a.setup.path("kubeconfig") }

// KubectlDir returns the directory of kubectl.
func (a *API) KubectlDir() string { return filepath.Dir(a.setup.Programs.Kubectl) }

// GetNode returns the node's state in the API.
func (a *API) GetNode(ctx context.Context) (NodeStatus, error) {
	var node struct{ Status NodeStatus }
	err := a.call(ctx, http.MethodGet, "/api/v1/nodes/"+Node, nil, &node)
	return node.Status, err
}

// Kubectl runs kubectl as the cluster's administrator and returns its output.
func (a *API) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, a.setup.Programs.Kubectl, args...)
	cmd.Env = []string{"KUBECONFIG=" + a.Kubeconfig(), "HOME=" + a.setup.Dir}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return string(out), nil
}
