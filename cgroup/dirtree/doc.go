// Package dirtree measures directory trees whose owners may change them at the same time: the volumes, layers
// and logs of pods. It reads metadata through descriptors, follows no symbolic link except the one that
// [ReadLogLink] checks, and writes nothing. It follows statx(2), getdents64(2) and openat(2).
package dirtree
