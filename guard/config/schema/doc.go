// Package schema reads and checks configuration files in TOML against a list of keys. guard/config and guard/fleet/config
// define the keys of their files with it.
//
// A [Key] is a name, a default and the field that holds its value. A [Checker] works in two steps, so that several files
// can set the same key: Read collects the values of a file, and Apply checks them and assigns them to the fields, or
// else the defaults. Both collect every mistake as an [Error] with its line and a hint; Err joins them.
//
// The package knows no key and no default of any file, and interprets no value but durations and numbers.
package schema
