package config

// Pod annotations that criguard honours in the namespaces of [annotations] trusted_namespaces.
const (
	AnnotationPriority = "criguard.io/priority"
	AnnotationProtect  = "criguard.io/protect"
	AnnotationRequest  = "criguard.io/memory-request"
	AnnotationGrace    = "criguard.io/grace-period"
	AnnotationStorage  = "criguard.io/ephemeral-storage-limit"
)
