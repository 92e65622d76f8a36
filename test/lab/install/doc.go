// Command install fetches and builds the container runtimes that the tests and the demo run on, and a Debian root for tests of
// the packages (as root). It installs nothing on the system: all
// of it lies in the lab's cache directory. Run again, it only says what is there.
package main
