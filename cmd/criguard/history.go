package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/cmd/criguard/internal/words"
	"github.com/criguard/criguard/guard/api"
	"github.com/criguard/criguard/guard/control"
	"github.com/criguard/criguard/guard/history"
)

func newHistory(o *options) *cobra.Command {
	var n int
	var since string
	var filter words.Filter
	var follow bool
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Show the last passes that did something, and why",
		Long: `Show the last passes that did something, and why. It asks the running service.
Without one, it reads the history file.

--since, --pod, --signal and --stops show all passes that match, unless --number limits them.
--follow prints new passes as they happen, one action per line, until it is interrupted;
with -o json, one pass per line. "criguard explain PASS" shows one in detail.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if n < 0 {
				return fmt.Errorf("--number %d: must not be negative", n)
			}
			if filter.Signal != "" {
				if _, err := parseSignal("--signal", filter.Signal); err != nil {
					return err
				}
			}
			if filter.Pod != "" && !isPod(filter.Pod) {
				return fmt.Errorf("--pod %q: want namespace/name or a name", filter.Pod)
			}
			selective := since != "" || filter != words.Filter{}
			if selective && !cmd.Flags().Changed("number") {
				n = 0
			}
			now := time.Now()
			q := api.HistoryQuery{N: n}
			if since != "" {
				var err error
				if q.Since, err = o.since(cmd, since, now); err != nil {
					return err
				}
			}
			if filter != (words.Filter{}) {
				q.N = 0
			}
			list, err := o.history(cmd, q)
			if err != nil {
				return err
			}
			last := newest(list.Passes)
			list.APIVersion, list.Passes = api.APIVersion, filter.Newest(list.Passes, n)
			if follow {
				q.N = 0
				return o.follow(cmd, list.Passes, last, q, filter)
			}
			return o.Print(cmd, list, func(w io.Writer) {
				if len(list.Passes) == 0 && selective {
					fmt.Fprintln(w, "No pass matches.")
					return
				}
				printHistory(w, list.Passes, now)
			})
		},
	}
	cmd.Flags().IntVar(&n, "number", 20, "how many passes, the newest; 0 = all")
	cmd.Flags().StringVar(&filter.Pod, "pod", "", "only passes that stopped, protected or unprotected this pod, as namespace/name or a name in any namespace")
	signalFlag(cmd, &filter.Signal, "only passes that acted on this signal, or were held back for it")
	cmd.Flags().BoolVar(&filter.Stops, "stops", false, "only passes that began or ended a stop")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "then print new passes as they happen")
	sinceFlag(cmd, &since)
	o.OutputFlag(cmd)
	return cmd
}

// sinceFlag adds --since to a command that shows passes.
func sinceFlag(cmd *cobra.Command, since *string) {
	cmd.Flags().StringVar(since, "since", "",
		"show passes since then: a duration ago, as 1h30m or 2d, or a time, as 16:10 (yesterday's if it is still to come today) or \"2006-01-02 15:04\" (default: all)")
}

// since parses --since. It notes on standard error if a time of day is yesterday's.
func (o *options) since(cmd *cobra.Command, text string, now time.Time) (time.Time, error) {
	t, err := words.ParseSince(text, now)
	if err == nil && words.IsYesterday(text, t, now) && !o.JSON() {
		cli.Say(cmd.ErrOrStderr(), "note: %s is still to come today: since yesterday, %s\n", text, t.Format("2006-01-02 15:04:05"))
	}
	return t, err
}

// history fetches passes, oldest first, from the service or else from the history file. It notes on standard
// error where they come from and why some are missing.
func (o *options) history(cmd *cobra.Command, q api.HistoryQuery) (api.HistoryList, error) {
	list, err := control.NewClient(o.dir()).Passes(cmd.Context(), q)
	if errors.Is(err, control.ErrNoService) {
		cfg, cfgErr := o.load()
		if cfgErr != nil {
			return list, cfgErr
		}
		read, readErr := history.Read(cmd.Context(), cfg.HistoryDir(), q)
		if !errors.Is(readErr, fs.ErrNotExist) {
			list, err = read, readErr
		}
	}
	if err != nil {
		return list, err
	}
	if list.Note != "" && list.Note != o.noted && !o.JSON() {
		o.noted = list.Note
		cli.Say(cmd.ErrOrStderr(), "note: %s\n", list.Note)
	}
	return list, nil
}

// isPod reports whether a text names a pod: namespace/name, or a name in any namespace.
func isPod(s string) bool {
	parts := strings.Split(s, "/")
	return len(parts) <= 2 && !slices.Contains(parts, "")
}

// followEvery is how often follow asks for new passes.
const followEvery = time.Second

// newest returns the last pass; the zero pass without passes.
func newest(passes []api.Pass) (last api.Pass) {
	if len(passes) > 0 {
		last = passes[len(passes)-1]
	}
	return last
}

// passesAfter asks for the passes that q selects and that followed the last one. IDs are used again if the service
// restarts without its history.
func passesAfter(last api.Pass, q api.HistoryQuery, ask func(api.HistoryQuery) (api.HistoryList, error)) ([]api.Pass, error) {
	q.From = last.ID
	list, err := ask(q)
	if err != nil || last.ID == 0 {
		return list.Passes, err
	}
	if len(list.Passes) > 0 && list.Passes[0].Time.Equal(last.Time) {
		return list.Passes[1:], nil
	}
	list, err = ask(api.HistoryQuery{Since: last.Time.Add(1)})
	return list.Passes, err
}

// follow prints passes and then those after the last one that q and the filter select, as they happen, until
// the user interrupts it. A restart of the service does not end it.
func (o *options) follow(cmd *cobra.Command, passes []api.Pass, last api.Pass, q api.HistoryQuery, filter words.Filter) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	waits := false
	for {
		for i := range passes {
			if err := o.printPass(cmd.OutOrStdout(), &passes[i]); err != nil {
				return err
			}
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-tick.C:
		}
		found, err := passesAfter(last, q, func(q api.HistoryQuery) (api.HistoryList, error) { return o.history(cmd, q) })
		lost := errors.Is(err, control.ErrNoService) || errors.Is(err, control.ErrNoAnswer)
		if lost && !waits {
			cli.Say(cmd.ErrOrStderr(), "note: the service does not answer, waiting for it\n")
		}
		if err != nil && !lost && cmd.Context().Err() == nil {
			return err
		}
		if waits = lost; len(found) > 0 {
			last = newest(found)
		}
		passes = filter.Newest(found, 0)
	}
}

// printPass prints one pass for follow.
func (o *options) printPass(w io.Writer, p *api.Pass) error {
	if o.JSON() {
		return cli.PrintLine(w, p)
	}
	for _, e := range words.Events(p) {
		if e.Why != "" {
			e.What += ": " + e.Why
		}
		cli.Say(w, "%s  pass %d  %s\n", words.Clock(p.Time.Local(), time.Now()), p.ID, e.What)
	}
	return nil
}

// textOfEvent is how much of what happened and why is worth more than another column.
const textOfEvent = 40

func printHistory(w io.Writer, passes []api.Pass, now time.Time) {
	if len(passes) == 0 {
		fmt.Fprintln(w, "The history has no pass.")
		return
	}
	t := cli.NewTable(w, "PASS", "TIME", "AGO", "WAKE", "TOOK", "WHAT", "WHY").Spare("TOOK", "WAKE", "AGO").Enough(textOfEvent)
	for i := range passes {
		p := &passes[i]
		id, at, took := fmt.Sprint(p.ID), words.Clock(p.Time.Local(), now), p.Took.Round(10*time.Microsecond).String()
		ago, wake := words.Ago(p.Time, now), p.Wake
		for _, e := range words.Events(p) {
			t.Row(id, at, ago, wake, took, e.What, e.Why)
			id, at, ago, wake, took = "", "", "", "", ""
		}
	}
	t.Flush()
}
