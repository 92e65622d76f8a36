package inventory

import (
	"maps"
	"slices"

	"github.com/criguard/criguard/cri"
	"github.com/criguard/criguard/guard/config"
	"github.com/criguard/criguard/policy"
)

// Limits of the pod metadata that is kept, in bytes. A pod's author may write 256 KiB of annotations and
// even more labels, and criguard's memory is locked.
const (
	maxAnnotation = 256     // one value; the annotations that criguard uses are far shorter
	maxLabel      = 1 << 10 // the value of a label that rules use; Kubernetes allows 63 bytes
	maxLabels     = 8 << 10 // all other labels together
	maxImage      = 512     // the reference of an image that is mounted
	maxImages     = 32      // such images of one container
)

// boundSandbox drops the annotations that criguard does not use, and labels beyond the limit.
func boundSandbox(s *cri.Sandbox, ruleLabels map[string]bool) {
	s.Annotations = pickAnnotations(s.Annotations,
		annotationConfigSource, annotationConfigMirror,
		config.AnnotationPriority, config.AnnotationProtect, config.AnnotationRequest, config.AnnotationGrace, config.AnnotationStorage)
	s.Labels = boundLabels(s.Labels, ruleLabels)
}

// boundContainer drops the fields that criguard does not use, and all mounts but images.
func boundContainer(d *cri.ContainerDetail) {
	d.Labels, d.Mounts = nil, imageMounts(d.Mounts)
	d.Annotations = pickAnnotations(d.Annotations, cri.AnnotationGracePeriod)
}

// imageMounts returns only the images that are mounted, without those whose reference is longer than maxImage.
func imageMounts(all []cri.Mount) (images []cri.Mount) {
	for _, m := range all {
		if m.Image != "" && len(m.Image) <= maxImage && len(images) < maxImages {
			images = append(images, cri.Mount{Image: m.Image})
		}
	}
	return images
}

// pickAnnotations returns the values of the given keys, except those longer than maxAnnotation; nil if there are no such
// values.
func pickAnnotations(all map[string]string, keys ...string) map[string]string {
	var picked map[string]string
	for _, k := range keys {
		v, ok := all[k]
		if !ok || len(v) > maxAnnotation {
			continue
		}
		if picked == nil {
			picked = map[string]string{}
		}
		picked[k] = v
	}
	return picked
}

// boundLabels returns all labels if their total size is within the limit. Otherwise it keeps the labels that
// rules or the workload name need, and fills the remaining space with other labels in name order.
func boundLabels(labels map[string]string, ruleLabels map[string]bool) map[string]string {
	if labelsSize(labels) <= maxLabels {
		return labels
	}
	kept := map[string]string{}
	room := maxLabels
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		v := labels[k]
		switch size := len(k) + len(v); {
		case ruleLabels[k] || slices.Contains(workloadLabels, k):
			if len(v) <= maxLabel {
				kept[k] = v
			}
		case size <= room:
			kept[k] = v
			room -= size
		}
	}
	return kept
}

func labelsSize(labels map[string]string) (n int) {
	for k, v := range labels {
		n += len(k) + len(v)
	}
	return n
}

// ruleLabels returns the labels that the configuration's rules use.
func ruleLabels(c *config.Config) map[string]bool {
	named := map[string]bool{}
	add := func(r policy.Rule) {
		for k := range r.Labels {
			named[k] = true
		}
	}
	for _, r := range c.Priorities {
		add(r.Rule)
	}
	for _, r := range c.Protects {
		add(r)
	}
	for _, l := range c.Limits {
		add(l.Rule)
	}
	return named
}
