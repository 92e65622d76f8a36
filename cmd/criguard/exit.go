package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// Reasons for exit code 3.
const (
	noService = "the service does not answer, or denies access"
	noRuntime = "the runtime does not answer"
	neither   = "the runtime or the service does not answer, or the service denies access"
	noEtcd    = "etcd does not answer"
	noHistory = "the service does not answer or denies access, or neither a service nor a history file is there"
)

// codes says what the exit codes of a command mean that not all commands have; "" = it never has this code.
type codes struct{ finding, unreachable string }

var exitCodes = map[string]codes{
	"status":    {"a condition holds, a threshold is met or an alarm is raised", neither + ", also under pressure"},
	"rank":      {"", neither},
	"history":   {"", noHistory},
	"explain":   {"", noHistory},
	"report":    {"", noService},
	"prune":     {"a removal failed, --until is not reached, the prune was interrupted, or the user did not confirm", neither},
	"images":    {"", neither},
	"record":    {"", noRuntime},
	"top":       {"", neither},
	"check":     {"a hard threshold is met now", ""},
	"reload":    {"the configuration is held", noService},
	"pause":     {"", noService},
	"resume":    {"", noService},
	"drain":     {"some pods still run at the timeout, or the user did not confirm", neither},
	"undrain":   {"", noService},
	"stop":      {"the pod still runs at the timeout, or the user did not confirm", neither},
	"protect":   {"", neither},
	"unprotect": {"", neither},
	"metrics":   {"", noService},

	"fleet status": {"a zone is not normal, soft stops are paused, or this node's agent does not answer, is alone or has an alarm", noEtcd},
	"fleet check":  {"something keeps the fleet from working, now or soon", "no endpoint is an etcd that answers"},
	"fleet pause":  {"", noEtcd},
	"fleet resume": {"", noEtcd},
	"fleet forget": {"", noEtcd},
}

// listExitCodes adds its exit codes to the help of every command.
func listExitCodes(root *cobra.Command) {
	for _, cmd := range everyCommand(root) {
		if cmd.Long == "" {
			cmd.Long = cmd.Short + "."
		}
		c := exitCodes[strings.TrimPrefix(cmd.CommandPath(), root.Name()+" ")]
		lines := []string{"", "", "Exit codes:", "  0  done"}
		if c.finding != "" {
			lines = append(lines, "  1  "+c.finding)
		}
		lines = append(lines, "  2  wrong usage, an invalid configuration, a refusal or another error")
		if c.unreachable != "" {
			lines = append(lines, "  3  "+c.unreachable)
		}
		cmd.Long += strings.Join(lines, "\n")
	}
}
