package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard/api"
)

func newProtect(o *options) *cobra.Command {
	c := api.Command{Command: api.CommandProtect}
	length := time.Hour
	cmd := &cobra.Command{
		Use:   "protect POD",
		Short: "Protect a pod from stops for a while",
		Long: `Protect a pod from all stops for a while, 24 hours at most: criguard treats it like a
pod that a [[protect]] rule names. POD is namespace/name, the UID or the sandbox ID; the
protection also covers new pods with that namespace and name. It expires, or ends
with ` + "`criguard unprotect`" + `; a reload or a restart of the service does not end it, a
reboot does. A stop in flight continues.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Pod, c.For = args[0], api.Duration(length)
			return o.command(cmd, c)
		},
	}
	lengthFlag(cmd, &length)
	reasonFlag(cmd, &c)
	o.OutputFlag(cmd)
	return cmd
}

func newUnprotect(o *options) *cobra.Command {
	c := api.Command{Command: api.CommandUnprotect}
	cmd := &cobra.Command{
		Use:   "unprotect POD",
		Short: "End the protection of a pod",
		Long: `End the protection of a pod that ` + "`criguard protect`" + ` began. POD is namespace/name, the UID
or the sandbox ID; for a pod that no longer runs, namespace/name.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Pod = args[0]
			return o.command(cmd, c)
		},
	}
	reasonFlag(cmd, &c)
	o.OutputFlag(cmd)
	return cmd
}
