// Command install fetches and builds what the tests and the demo run on: container runtimes, promtool and, as root, a Debian root for
// tests of the packages. It installs nothing on the system: all of it lies in the lab's cache directory. Run again, it only says what
// is there. With -only it sees to one runtime alone.
package main
