// Command workload is the program in every image of the lab: one static binary that behaves, or misbehaves, as its first argument says.
//
//	pause        do nothing
//	hog          take memory
//	fill         write bytes to files
//	inodes       make empty files
//	fork         start processes
//	spin         burn CPU
//	exit         end, with a code
//	ignore-term  do nothing, not even end on SIGTERM
//
// Every mode but exit stays until SIGTERM or SIGINT when its work is done, or could not be done, so that what it took stays taken.
// "workload MODE -h" lists a mode's flags. What it did it says on standard output, with the time since boot (CLOCK_BOOTTIME).
package main
