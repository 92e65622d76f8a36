// Command workload is the program in every image of the lab: a static binary whose first argument
// selects how it behaves or misbehaves.
//
//	pause        do nothing
//	hog          take memory
//	fill         write bytes to a file
//	inodes       create empty files
//	hide         write bytes where they are hard to find
//	fork         start processes
//	exit         end, with a code
//	ignore-term  do nothing, and ignore SIGTERM
//
// Every mode except exit stays until SIGTERM or SIGINT after its work is done or has failed, so
// that it keeps the resources it took. "workload MODE -h" lists a mode's flags. It reports its
// progress on standard output, with the time since boot (CLOCK_BOOTTIME).
package main
