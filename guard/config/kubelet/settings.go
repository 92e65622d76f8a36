package kubelet

import (
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/criguard/criguard/guard/config/schema"
)

// settings are the fields of a KubeletConfiguration that have an equivalent key. A field that is
// null or missing is nil.
type settings struct {
	header                           `yaml:",inline"`
	ContainerRuntimeEndpoint         *field[string] `yaml:"containerRuntimeEndpoint"`
	RootDir                          *field[string] `yaml:"rootDir"` // only a flag
	PodLogsDir                       *field[string] `yaml:"podLogsDir"`
	CgroupRoot                       *field[string] `yaml:"cgroupRoot"`
	CgroupDriver                     *field[string] `yaml:"cgroupDriver"`
	CgroupsPerQOS                    *field[bool]   `yaml:"cgroupsPerQOS"`
	EvictionHard                     *field[table]  `yaml:"evictionHard"`
	EvictionSoft                     *field[table]  `yaml:"evictionSoft"`
	EvictionSoftGracePeriod          *field[table]  `yaml:"evictionSoftGracePeriod"`
	EvictionMinimumReclaim           *field[table]  `yaml:"evictionMinimumReclaim"`
	EvictionMaxPodGracePeriod        *field[int64]  `yaml:"evictionMaxPodGracePeriod"`
	EvictionPressureTransitionPeriod *field[string] `yaml:"evictionPressureTransitionPeriod"`
	MergeDefaultEvictionSettings     *field[bool]   `yaml:"mergeDefaultEvictionSettings"`
	EnforceNodeAllocatable           *field[[]any]  `yaml:"enforceNodeAllocatable"`
	ImageGCHighThresholdPercent      *field[int64]  `yaml:"imageGCHighThresholdPercent"`
	ImageGCLowThresholdPercent       *field[int64]  `yaml:"imageGCLowThresholdPercent"`
	ImageMinimumGCAge                *field[string] `yaml:"imageMinimumGCAge"`
	ImageMaximumGCAge                *field[string] `yaml:"imageMaximumGCAge"`

	// Only flags.
	MinimumContainerTTLDuration       *field[string] `yaml:"minimumContainerTTLDuration"`
	MaximumDeadContainersPerContainer *field[int64]  `yaml:"maximumDeadContainersPerContainer"`
	MaximumDeadContainers             *field[int64]  `yaml:"maximumDeadContainers"`

	Others map[string]*field[any] `yaml:",inline"`
}

// header says what a document is.
type header struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
}

// table is a value by signal; an entry that a drop-in removes is nil.
type table map[string]*field[string]

// field is a value with the place where it was set. A field without a file is the kubelet's default.
type field[T any] struct {
	schema.Origin
	value T
	wrong *yaml.Node // a value of another type
}

// forms are the YAML tags of the types.
var forms = map[reflect.Kind]struct{ tag, rule string }{
	reflect.String: {"!!str", "must be a string"},
	reflect.Bool:   {"!!bool", "must be true or false"},
	reflect.Int64:  {"!!int", "must be a whole number"},
	reflect.Slice:  {"!!seq", "must be a list"},
	reflect.Map:    {"!!map", "must be a table"},
}

// UnmarshalYAML decodes a value over an earlier one, so that tables merge. It only records a value of
// another type, because an error could not name its field.
func (f *field[T]) UnmarshalYAML(n *yaml.Node) error {
	tag := forms[reflect.TypeFor[T]().Kind()].tag // "": any
	if f.Origin, f.wrong = (schema.Origin{File: n.HeadComment, Line: n.Line}), nil; tag != "" && n.ShortTag() != tag {
		f.wrong = n
		return nil
	}
	return n.Decode(&f.value)
}

// get returns a value and its origin. A value of another type is a mistake of the key.
func get[T any](c *conversion, key string, f *field[T]) (value T, from schema.Origin, ok bool) {
	if f == nil {
		return value, from, false
	}
	if f.wrong == nil {
		return f.value, f.Origin, true
	}
	var shown any
	if f.wrong.Kind == yaml.ScalarNode {
		_ = f.wrong.Decode(&shown)
	}
	c.add(f.Origin, key, shown, forms[reflect.TypeFor[T]().Kind()].rule, "a kubelet rejects it, too")
	return value, from, false
}

// mark sets the file of a node and those below it, in a member that decoding does not need. It
// returns their number.
func mark(n *yaml.Node, file string) (nodes int) {
	n.HeadComment = file
	for _, sub := range n.Content {
		nodes += mark(sub, file)
	}
	return nodes + 1
}
