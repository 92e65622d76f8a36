package schema_test

import (
	"fmt"
	"time"

	"github.com/criguard/criguard/guard/config/schema"
)

// Values of a later file win, missing keys get their defaults, and all mistakes of all files are reported.
func Example() {
	var cfg struct {
		Name    string
		Timeout time.Duration
		Rate    float64
		Ports   []string
	}
	keys := []schema.Key{
		schema.Text("name", &cfg.Name, func(c *schema.Checker, at, v string) {
			if len(v) > 5 {
				c.Add(at, v, "must have at most 5 letters", "")
			}
		}).OrRequire(`for example name = "a"`),
		schema.Duration("net.timeout", &cfg.Timeout, "10s", time.Second, time.Minute),
		schema.Bind("net.rate", &cfg.Rate, schema.NoUnit, 0.5, schema.Unchecked, schema.Same),
		schema.Texts("net.ports", &cfg.Ports, nil, func(*schema.Checker, string, string) {}),
	}
	read := func(first, second string) {
		c := schema.NewChecker(schema.Hints{Example: `name = "a"`, Table: "[net]"})
		if c.Read(keys, schema.File{Name: "1.toml", Text: []byte(first)}, schema.File{Name: "2.toml", Text: []byte(second)}) {
			c.Apply(keys)
		}
		if err := c.Err(); err != nil {
			fmt.Println(err)
		} else {
			fmt.Printf("%+v\n", cfg)
		}
	}
	read("name = 'first'\n[net]\nrate = 2", "name = 'last'")
	read("[net]\ntimeout = '90'\ncolour = 1", "net.ports = 'a'\nnet.rate = '1'\n[nett]")
	read("name = a", "")
	// Output:
	// {Name:last Timeout:10s Rate:2 Ports:[]}
	// 1.toml:2: net.timeout = "90": must have a unit (hint: "90s" means seconds; the units are ms, s, m and h)
	// 1.toml:3: net.colour: unknown key (hint: the keys here are timeout, rate, ports)
	// 2.toml:1: net.ports = "a": must be a list (hint: write it as ["a"])
	// 2.toml:2: net.rate = "1": must be a number (hint: write it without quotes, for example 0.1)
	// 2.toml:3: nett: unknown key (hint: did you mean [net]?)
	// 2.toml: name: must be set (hint: for example name = "a")
	// 1.toml:1: name: expected value but found "a" instead (hint: strings need quotes, for example name = "a"; tables need brackets, for example [net])
}

// A value is shown as it is usually written, and a list or a table in short.
func Example_value() {
	for _, value := range []any{1e6, 0.000001, []string{}, []string{"a"}, map[string]any{}} {
		fmt.Println(schema.NewError(schema.Origin{File: "a.toml", Line: 1}, "a", value, "must be good", ""))
	}
	// Output:
	// a.toml:1: a = 1000000: must be good
	// a.toml:1: a = 0.000001: must be good
	// a.toml:1: a = []: must be good
	// a.toml:1: a = […]: must be good
	// a.toml:1: a = {…}: must be good
}
