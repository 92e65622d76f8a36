package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// explainUsage has every command refuse what it does not take, and say where to read what it does.
func explainUsage(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return misused(cmd, err) })
	root.Args = func(_ *cobra.Command, args []string) error { return knownCommand(root, args) }
	root.SuggestionsMinimumDistance = 2
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
				if shell.Name() == "powershell" { // there is none on a node
					cmd.RemoveCommand(shell)
				}
				takes(shell, shell.Args)
			}
			takes(cmd, cobra.NoArgs)
		default:
			takes(cmd, cmd.Args)
		}
	}
}

// takes has a command say what it takes when these are not the arguments that it wants.
func takes(cmd *cobra.Command, want cobra.PositionalArgs) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if want(cmd, args) == nil {
			return nil
		}
		return misused(cmd, fmt.Errorf("arguments %q: want `%s`", args, cmd.UseLine()))
	}
}

// knownCommand makes sure that the arguments name a command, if anything.
func knownCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd, _, err := root.Find(args[:1]); err == nil && cmd != root {
		return nil
	}
	err := fmt.Errorf("unknown command %q", args[0])
	if like := root.SuggestionsFor(args[0]); len(like) > 0 {
		err = fmt.Errorf("%w: did you mean %s?", err, strings.Join(like, " or "))
	}
	return misused(root, err)
}

func misused(cmd *cobra.Command, err error) error {
	return &codeError{exitUsage, err, "`" + cmd.CommandPath() + " --help` says what there is"}
}
