package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/reclaim"
)

func newImages(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List every image, and why it is kept or may be pruned",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list reclaim.ImageList
			err := o.look(cmd.Context(), func(l *guard.Look) (err error) {
				list, err = l.Images(cmd.Context())
				return err
			})
			if err != nil {
				return err
			}
			if o.output == "json" {
				out := map[string]any{"apiVersion": guard.APIVersion, "images": list.Verdicts}
				if len(list.Notes) > 0 {
					out["notes"] = list.Notes
				}
				return printJSON(cmd.OutOrStdout(), out)
			}
			t := newTable(cmd.OutOrStdout(), "#", "IMAGE", "SIZE", "FIRST SEEN", "LAST USED", "WHY")
			for _, v := range list.Verdicts {
				pos, used := "kept", "never seen"
				if v.Removable {
					pos = strconv.Itoa(v.Position)
				}
				if v.Used {
					used = age(v.LastUsed) + " ago"
				}
				t.row(pos, v.Name, guard.FormatBytes(v.Size), age(v.Age)+" ago", used, v.Why)
			}
			t.flush()
			for _, note := range list.Notes {
				fmt.Fprintln(cmd.ErrOrStderr(), "air-gap file is not read:", note)
			}
			return nil
		},
	}
	o.outputFlag(cmd)
	return cmd
}
