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
	root.SetFlagErrorFunc(misusedFlag)
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

// misusedFlag returns the error for a wrong flag, or for an unknown command before it, whose flags it may be.
func misusedFlag(cmd *cobra.Command, err error) error {
	if cmd.HasSubCommands() {
		if unknown := knownCommand(cmd, cmd.Flags().Args()); unknown != nil {
			return unknown
		}
	}
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		if want := flagValues[invalid.GetFlag().Value.Type()]; want != "" {
			err = fmt.Errorf("--%s %q: want %s", invalid.GetFlag().Name, invalid.GetValue(), want)
		}
	}
	return cli.Misused(cmd, suggestFlag(cmd, err))
}

// flagValues says what the types of flags accept. The library returns the errors of Go's parsers, which do not.
var flagValues = map[string]string{
	"bool":     "true or false, or no value, which means true",
	"duration": "a duration, as 30s or 1h30m",
	"int":      "a whole number",
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
		if name := emptyFlag(cmd); name != "" {
			return cli.Misused(cmd, fmt.Errorf("--%s is empty: set it, or leave it out", name))
		}
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

// emptyFlag returns the name of a flag that is set to nothing, as with an unset variable of a script: its default, such as
// another file, is not what was meant.
func emptyFlag(cmd *cobra.Command) (name string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && f.Name != "reason" {
			name = f.Name
		}
	})
	return name
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
