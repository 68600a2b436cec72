// Package guide has the tests of the manual's user's guide: four nodes and a machine
// that is none, in network namespaces of their own, with the programs as they are
// installed. The guide's commands are in testdata.
package guide
