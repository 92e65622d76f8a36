package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/criguard/criguard/cmd/criguard/internal/cli"
	"github.com/criguard/criguard/guard/config/schema"
)

// explainUsage makes every command reject wrong arguments and point to its help.
func explainUsage(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return cli.Misused(cmd, suggestFlag(cmd, err)) })
	root.Args = func(_ *cobra.Command, args []string) error { return knownCommand(root, args) }
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error { return knownCommand(root, args) }
		case "completion":
			cmd.Use = "completion SHELL"
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			for _, shell := range cmd.Commands() {
				if shell.Name() == "powershell" { // nodes have no PowerShell
					cmd.RemoveCommand(shell)
				}
				takes(shell, shell.Args)
			}
			takes(cmd, cobra.NoArgs)
		default:
			explainCommand(cmd)
		}
	}
}

// suggestFlag adds the flag that was probably meant to the error for an unknown one.
func suggestFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	if like := schema.SuggestWord(unknown.GetSpecifiedName(), names); like != "" {
		return fmt.Errorf("%w: %s", err, like)
	}
	return err
}

// explainCommand makes a command, or the commands below it, reject wrong arguments.
func explainCommand(cmd *cobra.Command) {
	if !cmd.HasSubCommands() {
		takes(cmd, cmd.Args)
		return
	}
	cmd.Args = func(_ *cobra.Command, args []string) error { return knownCommand(cmd, args) }
	for _, sub := range cmd.Commands() {
		explainCommand(sub)
	}
}

// everyCommand returns the commands below a command, at any depth.
func everyCommand(root *cobra.Command) (all []*cobra.Command) {
	for _, cmd := range root.Commands() {
		all = append(append(all, cmd), everyCommand(cmd)...)
	}
	return all
}

// takes makes a command show its usage when its arguments do not match want.
func takes(cmd *cobra.Command, want cobra.PositionalArgs) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if want(cmd, args) == nil {
			return nil
		}
		given := fmt.Sprintf("unexpected arguments %q", args)
		if len(args) == 0 {
			given = "an argument is missing"
		}
		return cli.Misused(cmd, fmt.Errorf("%s: want `%s`", given, cmd.UseLine()))
	}
}

// knownCommand returns an error if the arguments name an unknown command.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd, _, err := root.Find(args[:1]); err == nil && cmd != root {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	var names []string
	for _, cmd := range root.Commands() {
		if cmd.IsAvailableCommand() {
			names = append(names, cmd.Name())
		}
	}
	if like := schema.SuggestWord(args[0], names); like != "" {
		err = fmt.Errorf("%w: %s", err, like)
	}
	return cli.Misused(root, err)
}
