// Package tutorial tests the tutorial: its commands are typed literally, in a copy of the tree.
package tutorial
