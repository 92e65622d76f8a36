package kubelet

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/criguard/criguard/cri/socket"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/guard/config/schema"
	"github.com/criguard/criguard/policy"
)

// defaultHard is a kubelet's default for evictionHard. It has no threshold for PIDs
// (kubernetes/pkg/kubelet/eviction/defaults_linux.go).
var defaultHard = map[string]string{
	"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
	"imagefs.available": "15%", "imagefs.inodesFree": "5%",
}

// Options say where a kubelet's configuration is and how literally to convert it.
type Options struct {
	// File is a KubeletConfiguration, a directory of its drop-ins, or the configuration of k3s or RKE2 with
	// flags for the kubelet, which includes k3s's own drop-ins.
	File    string
	DropIns []string // directories of drop-ins, *.conf
	// Exact switches off what the kubelet has no threshold for, instead of keeping criguard's default.
	Exact bool
}

// Convert reads a kubelet's configuration and returns the TOML for criguard, with comments for fields that
// it cannot convert. The error joins a *schema.Error for each mistake, with its line in the kubelet's file.
func Convert(o Options) (string, error) {
	c := &conversion{exact: o.Exact, whose: "the kubelet"}
	c.read(o.File, o.DropIns)
	return c.convert()
}

// conversion is a conversion in progress.
type conversion struct {
	settings
	exact    bool
	whose    string     // whose defaults apply: the kubelet's, or those of k3s or RKE2
	k3s      *k3sConfig // nil for a kubelet's own configuration
	files    []string
	mistakes []*schema.Error
	toml     strings.Builder
	origins  []schema.Origin // of each line of the TOML
	table    string          // the last one in the TOML
	left     []string        // comments on fields without an equivalent key
}

func (c *conversion) add(at schema.Origin, key string, value any, rule, hint string) {
	c.mistakes = append(c.mistakes, schema.NewError(at, key, value, rule, hint))
}

// convert converts the settings and checks the result against criguard's rules.
func (c *conversion) convert() (string, error) {
	if len(c.mistakes) > 0 {
		return "", schema.JoinErrors(c.files, c.mistakes)
	}
	c.misspelt()
	c.head()
	c.places()
	c.stops()
	c.thresholds()
	c.containers()
	c.images()
	if len(c.mistakes) > 0 {
		return "", schema.JoinErrors(c.files, c.mistakes) // checking the rest would mislead
	}
	_, err := config.Parse(c.files[0], strings.NewReader(c.toml.String()))
	for _, e := range schema.Errors(err) {
		if e.Line > 0 && e.Line <= len(c.origins) {
			e.File, e.Line = c.origins[e.Line-1].File, c.origins[e.Line-1].Line
		}
		c.mistakes = append(c.mistakes, e)
	}
	if err := schema.JoinErrors(c.files, c.mistakes); err != nil {
		return "", err
	}
	c.others()
	return c.toml.String(), nil
}

// misspelt reports the fields whose names resemble one that matters here. Listed among the unrelated ones, a threshold
// would be lost.
func (c *conversion) misspelt() {
	names := slices.Collect(maps.Keys(onlyKubelet))
	for f := range reflect.TypeFor[settings]().Fields() {
		if name := f.Tag.Get("yaml"); !strings.HasPrefix(name, ",") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Sorted(maps.Keys(c.Others)) {
		if f := c.Others[name]; f != nil && !slices.Contains(names, name) {
			if like := schema.SuggestWord(name, names); like != "" {
				c.add(f.Origin, name, nil, "unknown field", like)
			}
		}
	}
}

// places converts the paths and the endpoint.
func (c *conversion) places() {
	if endpoint, from, ok := get(c, "containerRuntimeEndpoint", c.ContainerRuntimeEndpoint); ok && endpoint != "" {
		if _, err := socket.Path(endpoint); err == nil {
			c.carry("runtime", "endpoint", endpoint, from, "")
		} else {
			c.leave("containerRuntimeEndpoint", "not a unix socket; criguard detects the runtime")
		}
	}
	if dir, from, ok := get(c, "rootDir", c.RootDir); ok && dir != "" {
		c.carry("node", "root_dir", dir, from, "")
	}
	if dir, from, ok := get(c, "podLogsDir", c.PodLogsDir); ok && dir != "" {
		c.carry("node", "pod_log_dir", dir, from, "the unit needs ReadWritePaths= for it")
	}
	root, from, _ := get(c, "cgroupRoot", c.CgroupRoot)
	driver, _, _ := get(c, "cgroupDriver", c.CgroupDriver)
	if driver != "" {
		c.leave("cgroupDriver", "criguard detects it")
	}
	perQOS, _, set := get(c, "cgroupsPerQOS", c.CgroupsPerQOS)
	switch {
	case set && !perQOS:
		c.leave("cgroupsPerQOS", "without it, no cgroup contains all pods, so criguard does not watch allocatableMemory.available")
	case strings.Trim(root, "/") == "":
	case driver == "": // the kubelet may take the runtime's, and k3s passes it in a flag
		c.leave("cgroupRoot", "criguard finds the pods' cgroup below it, whose path depends on the cgroup driver")
	default:
		c.carry("node", "pods_cgroup", podsCgroupBelow(root, driver), from, "cgroupRoot, for the kubelet's cgroup driver")
	}
}

// podsCgroupBelow returns the path of a kubelet's pods cgroup. The systemd driver creates a nested
// slice for each part, and each slice's name contains its parents' names.
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

// thresholds converts evictionHard, evictionSoft and the related fields. If evictionHard names any
// signal, a kubelet has no threshold for the others: criguard keeps its own, or switches them off if the
// result must be exact.
func (c *conversion) thresholds() {
	hard, soft := c.signals("evictionHard", c.EvictionHard), c.signals("evictionSoft", c.EvictionSoft)
	if merge, _, _ := get(c, "mergeDefaultEvictionSettings", c.MergeDefaultEvictionSettings); merge {
		hard = withDefaults(hard)
	}
	c.carryTable(config.TableHard, hard)
	defaults := policy.DefaultHard()
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		switch {
		case hard[name] != nil:
		case c.exact:
			c.carry(config.TableHard, name, "0%", schema.Origin{}, "off: the kubelet has no threshold for it")
		default:
			c.carry(config.TableHard, name, defaults[name], schema.Origin{}, "criguard's default: the kubelet has no threshold for it")
		}
	}
	allocatable := policy.AllocatableMemoryAvailable.String()
	if hard[allocatable] == nil && !c.enforcesPods() {
		c.carry(config.TableHard, allocatable, "0%", schema.Origin{}, `off: enforceNodeAllocatable has no "pods"`)
	}
	c.carryTable(config.TableSoft, soft)
	c.carryTable(config.TableGrace, c.companions("evictionSoftGracePeriod", c.EvictionSoftGracePeriod, "the signal has no soft threshold", soft))
	c.carryTable(config.TableMinReclaim, c.companions("evictionMinimumReclaim", c.EvictionMinimumReclaim, "the signal has no threshold", hard, soft))
}

// companions returns the entries of a table that belong to a threshold.
func (c *conversion) companions(name string, f *field[table], why string, thresholds ...table) table {
	t := c.signals(name, f)
	for _, signal := range slices.Sorted(maps.Keys(t)) {
		if !slices.ContainsFunc(thresholds, func(of table) bool { return of[signal] != nil }) {
			c.leave(schema.JoinKey(name, signal), why)
			delete(t, signal)
		}
	}
	return t
}

// signals returns the entries of a field that can be converted.
func (c *conversion) signals(name string, f *field[table]) table {
	all, _, _ := get(c, name, f)
	t := table{}
	for _, signal := range slices.Sorted(maps.Keys(all)) {
		s, err := policy.ParseSignal(signal)
		switch entry := all[signal]; {
		case entry == nil: // removed by a drop-in
		case strings.HasPrefix(signal, "containerfs."):
			c.leave(schema.JoinKey(name, signal), "the kubelet derives it from the filesystem that containerfs is on; so does criguard")
		case err == nil && !s.InKubelet():
			c.add(entry.Origin, schema.JoinKey(name, signal), nil, "unknown signal", "only criguard has this signal")
		default:
			t[signal] = entry
		}
	}
	return t
}

func (c *conversion) carryTable(name string, t table) {
	for _, signal := range slices.Sorted(maps.Keys(t)) {
		text, from, ok := get(c, schema.JoinKey(name, signal), t[signal])
		why := ""
		if from.File == "" {
			why = c.whose + "'s default"
		}
		if ok {
			c.carry(name, signal, text, from, why)
		}
	}
}

func withDefaults(hard table) table {
	all := tableOf(defaultHard)
	maps.Copy(all, hard)
	return all
}

// tableOf returns a kubelet's defaults as a table.
func tableOf(defaults map[string]string) table {
	all := table{}
	for name, value := range defaults {
		all[name] = &field[string]{value: value}
	}
	return all
}

// enforcesPods reports whether the kubelet limits the pods cgroup, which criguard then watches.
func (c *conversion) enforcesPods() bool {
	list, _, ok := get(c, "enforceNodeAllocatable", c.EnforceNodeAllocatable)
	return !ok || slices.Contains(list, any("pods"))
}

// maxGraceSeconds is the longest grace period that criguard accepts.
const maxGraceSeconds = 24 * 60 * 60

// stops converts the settings for stopping pods.
func (c *conversion) stops() {
	seconds, from, set := get(c, "evictionMaxPodGracePeriod", c.EvictionMaxPodGracePeriod)
	why := ""
	switch {
	case seconds < 0:
		seconds, why = 0, "evictionMaxPodGracePeriod is negative: no grace period"
	case seconds > maxGraceSeconds:
		seconds, why = maxGraceSeconds, "evictionMaxPodGracePeriod is longer; this is the maximum"
	case !set:
		why = "the kubelet's default: soft stops have no grace period either"
	}
	if set || c.EvictionSoft != nil && len(c.EvictionSoft.value) > 0 {
		c.carry("eviction", "max_pod_grace_period", fmt.Sprintf("%ds", seconds), from, why)
	}
	c.duration("evictionPressureTransitionPeriod", c.EvictionPressureTransitionPeriod, "eviction", "pressure_transition_period", "5m")
}

// duration converts a duration. instead is the value that a kubelet uses for 0; "" means 0 itself.
func (c *conversion) duration(name string, f *field[string], table, key, instead string) {
	text, from, ok := get(c, name, f)
	if !ok {
		return
	}
	why := ""
	if d, err := time.ParseDuration(text); err == nil && d == 0 && instead != "" {
		text, why = instead, "a kubelet uses this for 0"
	}
	c.carry(table, key, text, from, why)
}

// containers converts the settings for dead containers.
func (c *conversion) containers() {
	c.duration("minimumContainerTTLDuration", c.MinimumContainerTTLDuration, "containers", "min_age", "")
	if n, from, ok := get(c, "maximumDeadContainersPerContainer", c.MaximumDeadContainersPerContainer); ok {
		c.carryNumber("containers", "max_per_container", n, from)
	}
	if n, from, ok := get(c, "maximumDeadContainers", c.MaximumDeadContainers); ok {
		c.carryNumber("containers", "max", n, from)
	}
}

// A kubelet's defaults for imageGCHighThresholdPercent and imageGCLowThresholdPercent.
const defaultHigh, defaultLow = 85, 80

func (c *conversion) images() {
	high, highFrom, highSet := get(c, "imageGCHighThresholdPercent", c.ImageGCHighThresholdPercent)
	if !highSet {
		high = defaultHigh
	} else {
		c.carry("images", "high", fmt.Sprintf("%d%%", high), highFrom, "")
	}
	low, lowFrom, lowSet := get(c, "imageGCLowThresholdPercent", c.ImageGCLowThresholdPercent)
	if !lowSet {
		low = defaultLow
	} else {
		c.carry("images", "low", fmt.Sprintf("%d%%", low), lowFrom, "")
	}
	switch {
	case low < high:
	case lowSet:
		c.add(lowFrom, "imageGCLowThresholdPercent", low, fmt.Sprintf("must be below imageGCHighThresholdPercent, which is %d", high), "a kubelet rejects it, too")
	default:
		c.add(highFrom, "imageGCHighThresholdPercent", high, fmt.Sprintf("must be above imageGCLowThresholdPercent, which is %d by default", low), "a kubelet rejects it, too")
	}
	c.duration("imageMinimumGCAge", c.ImageMinimumGCAge, "images", "min_age", "2m")
	c.duration("imageMaximumGCAge", c.ImageMaximumGCAge, "images", "max_age", "")
	if c.k3s != nil && c.k3s.airgapDir() != "" {
		c.carryTOML("images", "airgap_dirs", "["+config.TOMLString(c.k3s.airgapDir())+"]", c.k3s.dataFrom, "of data-dir")
	}
}
