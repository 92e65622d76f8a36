package main

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/reclaim"
)

func newImages(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List all images, and why each is kept or may be pruned",
		Long: `List all images, and why each is kept or may be pruned. It asks the running service,
which knows the ages. Without a service, or with --endpoint of another runtime than the
service's, it inspects the node directly.

SIZE is as the runtime reports it; containerd counts only the compressed layers. A removal
may free more, because it also removes the unpacked layers, or less, because other images
share layers. prune shows what came back.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list, err := o.images(cmd.Context())
			if err != nil {
				return err
			}
			o.noteUnused(cmd)
			if o.JSON() {
				list.Verdicts = append([]reclaim.Verdict{}, list.Verdicts...) // [] instead of null
				return cli.PrintJSON(cmd.OutOrStdout(), api.ImageList{APIVersion: api.APIVersion, ImageList: list})
			}
			t := cli.NewTable(cmd.OutOrStdout(), "#", "IMAGE", "SIZE", "FIRST SEEN", "LAST USED", "WHY").Spare("FIRST SEEN", "LAST USED")
			for _, v := range list.Verdicts {
				pos, used := "kept", "never seen"
				if v.Removable {
					pos = strconv.Itoa(v.Position)
				}
				if v.Used {
					used = cli.Age(time.Duration(v.LastUsed)) + " ago"
				}
				t.Row(pos, v.Name, api.FormatBytes(v.Size), firstSeen(v.Item), used, v.Why)
			}
			t.Flush()
			printHeldBack(cmd.ErrOrStderr(), list.Notes, list.InDoubt)
			items := make([]reclaim.Item, len(list.Verdicts))
			for i := range list.Verdicts {
				items[i] = list.Verdicts[i].Item
			}
			printUnknown(cmd.ErrOrStderr(), items)
			return nil
		},
	}
	o.OutputFlag(cmd)
	return cmd
}

// images asks the service, or inspects the node directly if no service manages this runtime.
func (o *options) images(ctx context.Context) (reclaim.ImageList, error) {
	return fetch(ctx, o, func(c *control.Client) (reclaim.ImageList, error) { return c.Images(ctx) },
		func(l *guard.Look) (reclaim.ImageList, error) { return l.Images(ctx) })
}

func firstSeen(it reclaim.Item) string {
	if it.AgeUnknown {
		return itemAge(it)
	}
	return itemAge(it) + " ago"
}
