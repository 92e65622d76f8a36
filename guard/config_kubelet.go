package guard

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/policy"
)

// kubeletDefaultHard is what a kubelet has where evictionHard is left out. It has no
// threshold of PIDs (kubernetes/pkg/kubelet/eviction/defaults_linux.go).
var kubeletDefaultHard = map[string]string{
	"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
	"imagefs.available": "15%", "imagefs.inodesFree": "5%",
}

// FromKubelet reads a kubelet's configuration, and over it the drop-ins (*.conf) of
// its directories, and gives the TOML that means the same to criguard, with comments
// for what cannot be carried over. The error joins a *ConfigError for each mistake,
// with its line in the kubelet's file.
func FromKubelet(file string, dropIns ...string) (string, error) {
	m := &mistakes{}
	fields := m.readKubelet(file, dropIns)
	if err := m.err(); err != nil {
		return "", err
	}
	return convertKubelet(m, fields)
}

// convertKubelet carries the fields over, and holds them to criguard's rules.
func convertKubelet(m *mistakes, fields kubeletFields) (string, error) {
	c := kubeletConversion{mistakes: m, fields: fields, used: map[string]bool{"apiVersion": true, "kind": true}}
	if m.keyed == nil {
		m.keyed = map[string]Origin{}
	}
	for name, f := range fields {
		m.keyed[name] = f.Origin
	}
	c.places()
	c.stops()
	c.thresholds()
	c.images()
	keys := defaultKeys()
	m.fill(reflect.ValueOf(&keys).Elem(), c.tree(), "")
	if _, err := checkConfig(keys, m); err != nil {
		return "", err
	}
	return c.text(), nil
}

// kubeletConversion is what has been carried over so far.
type kubeletConversion struct {
	*mistakes
	fields  kubeletFields
	used    map[string]bool // fields that were looked at
	carried []carriedKey
	left    []leftField
}

// carriedKey is a key of criguard's with its value, and what there is to say of it.
type carriedKey struct {
	table, key, value, why string
}

// leftField is a field that has no key here.
type leftField struct{ name, why string }

func (c *kubeletConversion) carry(table, key, value string, from Origin, why string) {
	c.carried = append(c.carried, carriedKey{table, key, value, why})
	c.keyed[joinKey(table, key)] = from
}

func (c *kubeletConversion) leave(name, why string) {
	c.left = append(c.left, leftField{name, why})
}

// places carries over where things are.
func (c *kubeletConversion) places() {
	if socket, from, ok := scalar[string](c, "containerRuntimeEndpoint"); ok && socket != "" {
		if strings.HasPrefix(socket, "unix://") || path.IsAbs(socket) {
			c.carry("runtime", "endpoint", socket, from, "")
		} else {
			c.leave("containerRuntimeEndpoint", "it is no unix socket; criguard looks for one")
		}
	}
	if dir, from, ok := scalar[string](c, "podLogsDir"); ok && dir != "" {
		c.carry("node", "pod_log_dir", dir, from, "")
	}
	root, from, _ := scalar[string](c, "cgroupRoot")
	driver, _, _ := scalar[string](c, "cgroupDriver")
	perQOS, _, set := scalar[bool](c, "cgroupsPerQOS")
	switch {
	case set && !perQOS:
		c.leave("cgroupsPerQOS", "without it no cgroup holds all pods, and allocatableMemory.available is not watched")
	case strings.Trim(root, "/") != "":
		c.carry("node", "pods_cgroup", podsCgroupBelow(root, driver), from, "cgroupRoot, by the kubelet's cgroup driver")
	}
}

// podsCgroupBelow is where a kubelet puts the pods' cgroup. The systemd driver makes a
// slice of each part, whose name has those above it.
func podsCgroupBelow(root, driver string) string {
	parts := append(strings.FieldsFunc(root, func(r rune) bool { return r == '/' }), "kubepods")
	if driver != "systemd" {
		return "/" + path.Join(parts...)
	}
	cgroup, name := "/", ""
	for _, part := range parts {
		name = strings.TrimPrefix(name+"-"+strings.ReplaceAll(part, "-", "_"), "-")
		cgroup = path.Join(cgroup, name+".slice")
	}
	return cgroup
}

// thresholds carries over evictionHard, evictionSoft and what belongs to them. A
// kubelet whose evictionHard names any signal has none for the others, which must be
// switched off here.
func (c *kubeletConversion) thresholds() {
	hard, soft := c.table("evictionHard"), c.table("evictionSoft")
	if merge, _, _ := scalar[bool](c, "mergeDefaultEvictionSettings"); merge {
		hard = withKubeletDefaults(hard)
	}
	for _, name := range c.signals("evictionHard", hard) {
		why := ""
		if hard[name].File == "" {
			why = "the kubelet's default"
		}
		c.threshold(policy.TableHard, name, hard[name], why)
	}
	for _, name := range sortedKeys(policy.DefaultHard()) {
		if _, named := hard[name]; !named {
			c.carry(policy.TableHard, name, "0%", Origin{}, "off: the kubelet has no threshold for it")
		}
	}
	allocatable := policy.AllocatableMemoryAvailable.String()
	if _, named := hard[allocatable]; !named && !c.enforcesPods() {
		c.carry(policy.TableHard, allocatable, "0%", Origin{}, `off: enforceNodeAllocatable has no "pods"`)
	}
	for _, name := range c.signals("evictionSoft", soft) {
		c.threshold(policy.TableSoft, name, soft[name], "")
	}
	grace := c.table("evictionSoftGracePeriod")
	for _, name := range c.signals("evictionSoftGracePeriod", grace) {
		if _, ok := soft[name]; ok {
			c.threshold(policy.TableGrace, name, grace[name], "")
		} else {
			c.leave(joinKey("evictionSoftGracePeriod", name), "it belongs to no soft threshold")
		}
	}
	reclaim := c.table("evictionMinimumReclaim")
	for _, name := range c.signals("evictionMinimumReclaim", reclaim) {
		_, isHard := hard[name]
		if _, isSoft := soft[name]; isHard || isSoft {
			c.threshold(policy.TableMinReclaim, name, reclaim[name], "")
		} else {
			c.leave(joinKey("evictionMinimumReclaim", name), "it belongs to no threshold")
		}
	}
}

// notTheKubelets are the signals that criguard alone has.
var notTheKubelets = []policy.Signal{policy.MeminfoAvailable, policy.SwapAvailable, policy.MemoryStall, policy.IOStall}

// signals lists the signals of a field that are carried over.
func (c *kubeletConversion) signals(field string, table kubeletFields) (names []string) {
	for _, name := range sortedKeys(table) {
		if strings.HasPrefix(name, "containerfs.") {
			c.leave(joinKey(field, name), "the kubelet sets it by itself, from the filesystem that containerfs is on; so does criguard")
			continue
		}
		if s, err := policy.ParseSignal(name); err == nil && slices.Contains(notTheKubelets, s) {
			c.add(joinKey(field, name), nil, "unknown signal", "criguard has it, a kubelet has not")
			continue
		}
		names = append(names, name)
	}
	return names
}

func (c *kubeletConversion) threshold(table, name string, f kubeletField, why string) {
	text, ok := f.value.(string)
	if !ok {
		c.keyed[joinKey(table, name)] = f.Origin
		c.add(joinKey(table, name), f.scalar(), "must be a string", "with quotes; a kubelet refuses it, too")
		return
	}
	c.carry(table, name, text, f.Origin, why)
}

func withKubeletDefaults(hard kubeletFields) kubeletFields {
	all := kubeletFields{}
	for name, value := range kubeletDefaultHard {
		all[name] = kubeletField{value: value}
	}
	for name, f := range hard {
		all[name] = f
	}
	return all
}

// enforcesPods tells whether the pods' cgroup gets a limit, which is watched then.
func (c *kubeletConversion) enforcesPods() bool {
	const name = "enforceNodeAllocatable"
	c.used[name] = true
	f, ok := c.fields[name]
	if !ok || f.value == nil {
		return true
	}
	list, ok := f.value.([]kubeletField)
	if !ok {
		c.add(name, f.scalar(), "must be a list", "")
	}
	return slices.ContainsFunc(list, func(item kubeletField) bool { return item.value == "pods" })
}

// maxGraceSeconds is the longest grace period that criguard takes.
const maxGraceSeconds = 24 * 60 * 60

// stops carries over how pods are stopped.
func (c *kubeletConversion) stops() {
	seconds, from, set := scalar[int64](c, "evictionMaxPodGracePeriod")
	why := ""
	switch {
	case seconds < 0:
		seconds, why = 0, "evictionMaxPodGracePeriod is negative, which is none"
	case seconds > maxGraceSeconds:
		seconds, why = maxGraceSeconds, "evictionMaxPodGracePeriod is longer; this is the most"
	case !set:
		why = "the kubelet's default: soft stops have no grace period either"
	}
	if set || len(c.table("evictionSoft")) > 0 {
		c.carry("eviction", "max_pod_grace_period", fmt.Sprintf("%ds", seconds), from, why)
	}
	c.duration("evictionPressureTransitionPeriod", "eviction", "pressure_transition_period", "5m")
}

// duration carries a duration over; instead is what a kubelet takes 0 for, "" = 0.
func (c *kubeletConversion) duration(field, table, key, instead string) {
	text, from, ok := scalar[string](c, field)
	if !ok {
		return
	}
	if d, err := time.ParseDuration(text); err == nil && d == 0 && instead != "" {
		c.carry(table, key, instead, from, "what a kubelet takes 0 for")
		return
	}
	c.carry(table, key, text, from, "")
}

func (c *kubeletConversion) images() {
	for _, p := range []struct{ field, key string }{
		{"imageGCHighThresholdPercent", "high"}, {"imageGCLowThresholdPercent", "low"},
	} {
		if n, from, ok := scalar[int64](c, p.field); ok {
			c.carry("images", p.key, fmt.Sprintf("%d%%", n), from, "")
		}
	}
	c.duration("imageMinimumGCAge", "images", "min_age", "2m")
	c.duration("imageMaximumGCAge", "images", "max_age", "")
}
