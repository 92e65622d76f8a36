package package_test

import (
	"strings"
	"testing"
)

// completions are typed lines and their expected completions.
var completions = []struct{ typed, want string }{
	{"criguard simu", "criguard simulate"},
	{"criguard rank --sig", "criguard rank --signal"},
	{"criguard rank --signal memory.av", "criguard rank --signal memory.available"},
	{"criguard status -o js", "criguard status -o json"},
}

// driveZsh types into an interactive zsh: Tab completes, and Control-X prints the line.
const driveZsh = `
zmodload zsh/zpty
zpty shell 'TERM=dumb zsh -f -i'
type() { zpty -w -n shell "$1" }
type $'PS1=; unsetopt zle_bracketed_paste 2>/dev/null; autoload -U compinit; compinit -u\n'
type $'show() { print -r -- "LINE<$BUFFER>"; zle kill-buffer }; zle -N show; bindkey "^X" show\n'
type $'print re\'\'ady\n'
zpty -r shell said $'*ready*'
for line in "$@"; do
	type "$line"$'\t\x18'
	zpty -r shell said $'*LINE<*>*'
	print -r -- "${${said##*LINE<}%%>*}"
done
zpty -d shell
`

const driveBash = `
source /usr/share/bash-completion/bash_completion
compopt() { :; } # Readline's own, which is not there
for COMP_LINE in "$@"; do
	_completion_loader criguard # loads the packaged script, as the first Tab does
	read -ra COMP_WORDS <<<"$COMP_LINE"
	COMP_POINT=${#COMP_LINE} COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_TYPE=9 COMPREPLY=()
	$(complete -p criguard | sed -E 's/.*-F ([^ ]+) .*/\1/')
	COMP_WORDS[COMP_CWORD]=${COMPREPLY[0]%% *}
	echo "${COMP_WORDS[*]} of ${#COMPREPLY[@]}"
done
`

const driveFish = `
for line in $argv
	set -l found (complete -C $line)
	echo (string join -- ' ' (string split -- ' ' $line)[1..-2] (string split -- \t $found[1])[1]) of (count $found)
end
`

func TestCompletions(t *testing.T) {
	r := openRoom(t)
	r.do("dpkg", "-i", r.put(all[0].debFile()))
	for shell, program := range map[string]struct{ text, suffix string }{
		"bash": {driveBash, " of 1"}, "zsh": {driveZsh, ""}, "fish": {driveFish, " of 1"},
	} {
		args := []string{r.write(shell, program.text, 0o644)}
		var want []string
		for _, c := range completions {
			args = append(args, c.typed)
			want = append(want, c.want+program.suffix)
		}
		out := r.do(shell, args...)
		var got []string
		for _, line := range strings.Split(out, "\n") {
			got = append(got, strings.TrimSpace(line)) // the shell adds a space
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s completes\n%s\nwant\n%s", shell, out, strings.Join(want, "\n"))
		}
	}
}
